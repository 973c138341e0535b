"""Objects as files: `bringup apply` reads them and makes the API hold what they say."""
