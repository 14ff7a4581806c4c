"""What holds for all tests."""

from __future__ import annotations

import signal

# Whoever starts the tests in the background may have had these ignored, and what they start would inherit that.
for _number, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, _handler)
