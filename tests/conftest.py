import signal

# A shell without job control has what it starts in the background ignore SIGINT, and so would all that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
