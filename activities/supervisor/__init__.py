"""Steps on a machine: started once, followed from anywhere, ended for certain."""
