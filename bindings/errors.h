// The one place where a Status becomes an exception. Two audiences: Python callers of collectives.Communicator, and c10d,
// whose C++ frames must see c10 exceptions. Included by the other bindings only.
#pragma once

#include <Python.h>

#include "base/status.h"

namespace collectives {

/// Throws the Python exception of a failed status (py::error_already_set). Needs the GIL.
///
/// invalid_argument, unsupported -> ValueError; mismatch -> MismatchError; timeout -> CollectiveTimeoutError (also a
/// TimeoutError); peer_failed -> PeerFailedError; aborted -> AbortedError; closed -> ClosedError; internal ->
/// CollectivesError; interrupted -> the error that the signal handler raised (KeyboardInterrupt for Ctrl-C) in the
/// call that it ended, CollectivesError in later ones.
[[noreturn]] void throw_status(const Status& status);

/// The same without a throw: sets the Python error and returns null, for functions of the C API. Needs the GIL.
PyObject* set_status_error(const Status& status) noexcept;

/// The Python exception of a status as an object; None when it is ok. Needs the GIL; null with a Python error.
PyObject* exception_of(const Status& status) noexcept;

/// Returns when ok. Otherwise throws c10::ValueError for invalid_argument and unsupported, the signal handler's own
/// Python error for interrupted, and c10::DistBackendError for the rest. May be called with or without the GIL.
void throw_c10d(const Status& status);

/// Turns the exception that is being handled into a Python error; for `catch (...)` of C API functions. Needs the GIL.
PyObject* set_current_exception() noexcept;

/// Lets Ctrl-C end a blocking wait of the core on the main thread. Called once, when the module is loaded.
void install_interrupt_check();

} // namespace collectives
