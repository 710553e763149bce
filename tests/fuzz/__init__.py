"""What may be done to bytes from strangers, to be tried with any bytes."""
