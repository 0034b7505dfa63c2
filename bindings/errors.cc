// Status -> exception, and the check that lets Ctrl-C end a wait. See errors.h.
#include "bindings/errors.h"

#include <c10/util/Exception.h>
#include <pybind11/pybind11.h>

#include <new>

#include "engine/communicator.h"

namespace py = pybind11;

namespace collectives {
namespace {

/// The class in collectives/errors.py for a code; RuntimeError's place is taken by CollectivesError.
const char* exception_name(Code code) {
    switch (code) {
    case Code::mismatch: return "MismatchError";
    case Code::timeout: return "CollectiveTimeoutError";
    case Code::peer_failed: return "PeerFailedError";
    case Code::aborted: return "AbortedError";
    case Code::closed: return "ClosedError";
    default: return "CollectivesError";
    }
}

void set_library_error(const Status& status) {
    PyObject* module = PyImport_ImportModule("collectives.errors");
    if (module == nullptr)
        return; // the import's own error says more than nothing
    PyObject* type = PyObject_GetAttrString(module, exception_name(status.code()));
    if (type != nullptr)
        PyErr_SetString(type, status.message().c_str());
    Py_XDECREF(type);
    Py_DECREF(module);
}

unsigned long main_thread = 0;

/// Runs in blocking waits, without the GIL. A signal handler that raised (Ctrl-C) ends the wait; its error stays set in
/// this thread's state until set_status_error finds it there.
bool interrupted_by_signal() {
    if (PyThread_get_thread_ident() != main_thread || !Py_IsInitialized())
        return false;
    const PyGILState_STATE state = PyGILState_Ensure();
    const bool raised = PyErr_Occurred() != nullptr || PyErr_CheckSignals() != 0;
    PyGILState_Release(state);
    return raised;
}

} // namespace

PyObject* set_status_error(const Status& status) noexcept {
    switch (status.code()) {
    case Code::invalid_argument:
    case Code::unsupported: PyErr_SetString(PyExc_ValueError, status.message().c_str()); break;
    case Code::interrupted: // the handler's own error is set in the call that it ended, and in no later one
        if (PyErr_Occurred() == nullptr)
            set_library_error(status);
        break;
    default: set_library_error(status);
    }
    return nullptr;
}

PyObject* exception_of(const Status& status) noexcept {
    if (status.ok())
        return Py_NewRef(Py_None);
    set_status_error(status);
    PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return value;
}

void throw_status(const Status& status) {
    set_status_error(status);
    throw py::error_already_set();
}

void throw_c10d(const Status& status) {
    switch (status.code()) {
    case Code::ok: return;
    case Code::invalid_argument:
    case Code::unsupported:
        throw c10::ValueError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, status.message());
    case Code::interrupted: {
        py::gil_scoped_acquire gil;
        if (PyErr_Occurred() != nullptr)
            throw_status(status);
        break; // the handler's error was raised before: this is a later call of a group that failed then
    }
    default: break;
    }
    std::string message = status.message();
    if (status.code() == Code::timeout)
        message += " (a longer timeout can be given to init_process_group, new_group or the operation)";
    throw c10::DistBackendError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, std::move(message));
}

PyObject* set_current_exception() noexcept {
    try {
        throw;
    } catch (py::error_already_set& error) {
        error.restore();
    } catch (const c10::ValueError& error) {
        PyErr_SetString(PyExc_ValueError, error.what_without_backtrace());
    } catch (const c10::Error& error) {
        PyErr_SetString(PyExc_RuntimeError, error.what_without_backtrace());
    } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
    } catch (...) {
        PyErr_SetString(PyExc_SystemError, "collectives: a C++ exception of unknown type");
    }
    return nullptr;
}

void install_interrupt_check() {
    const py::module_ threading = py::module_::import("threading");
    main_thread = threading.attr("main_thread")().attr("ident").cast<unsigned long>();
    set_interrupt_check(&interrupted_by_signal);
}

} // namespace collectives
