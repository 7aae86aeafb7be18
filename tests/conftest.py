"""For all tests."""

import signal

# A shell that starts the tests in the background makes them ignore SIGINT, and every process they start too; then
# nothing that is about Ctrl-C could be tested.
signal.signal(signal.SIGINT, signal.default_int_handler)
