"""The same ten steps on many machines, by bringup and by what people would use instead."""
