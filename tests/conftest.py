"""For all tests."""

import signal

# Who is started in the background may ignore Ctrl-C, and so would everything that the tests start and then interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
