"""What there is to choose from, one line each: the commands `fdgjax methods` and `fdgjax models`."""
