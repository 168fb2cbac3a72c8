import ctypes
import errno
import os
import sys

libc = ctypes.CDLL(None, use_errno=True)


def call(name, *arguments):
    words = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    return "done" if libc.syscall(NUMBERS[name], *words) >= 0 else errno.errorcode[ctypes.get_errno()]


def tried(function, *arguments):
    try:
        function(*arguments)
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
    except Exception as error:
        return type(error).__name__
    return "done"
