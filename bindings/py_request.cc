// The Python type Request. See py_request.h.
//
// A Request that Python drops while its operation runs must not take the arrays with it: the core still writes to them.
// They move to a list that later calls sweep, a few entries each so that a call costs the same however many were dropped,
// rather than to a callback of the request, because that would make the progress thread wait for the GIL.
#include "bindings/py_request.h"

#include <new>
#include <utility>
#include <vector>

#include "bindings/arguments.h"
#include "bindings/errors.h"
#include "bindings/tensor_view.h"

namespace collectives {
namespace {

struct PyRequest {
    PyObject_HEAD RequestPtr request;
    PyObject* keep;
    PyObject* result;
    int outputs;
    bool marked; // autograd was told that the outputs changed
};

PyTypeObject* request_type = nullptr;

struct Dropped {
    RequestPtr request;
    PyObject* keep;
};
std::vector<Dropped>& dropped_requests() { // never destroyed: Python may drop requests while the process ends
    static auto* list = new std::vector<Dropped>;
    return *list;
}

PyRequest* self_of(PyObject* object) { return reinterpret_cast<PyRequest*>(object); }

void mark_outputs(PyRequest* self) {
    if (self->marked)
        return;
    self->marked = true;
    for (int i = 0; i < self->outputs; ++i) {
        PyObject* array = PyTuple_GET_ITEM(self->keep, i);
        ArrayView view;
        if (view_array(array, "out", &view))
            mark_written(array, view);
        else
            PyErr_Clear();
    }
}

PyObject* result_of(PyRequest* self) {
    if (self->result == nullptr)
        return PyLong_FromLong(self->request->source());
    return Py_NewRef(self->result);
}

PyObject* finished(PyRequest* self) {
    if (const Status status = self->request->status(); !status.ok())
        return set_status_error(status);
    mark_outputs(self);
    return result_of(self);
}

PyObject* request_wait(PyObject* object, PyObject* const* arguments, Py_ssize_t positional, PyObject* keywords) {
    static Signature signature{"wait", 0, 1, {"timeout"}};
    PyObject* values[1];
    int64_t timeout_ns = -1;
    if (!signature.intern() || !signature.parse(arguments, positional, keywords, values))
        return nullptr;
    if (!parse_timeout(values[0], &timeout_ns))
        return nullptr;
    const RequestPtr request = self_of(object)->request;
    if (!wait_for(*request, timeout_ns))
        return nullptr;
    return finished(self_of(object));
}

PyObject* request_done(PyObject* object, PyObject*) { return PyBool_FromLong(self_of(object)->request->done()); }

PyObject* request_exception(PyObject* object, PyObject*) {
    const RequestPtr& request = self_of(object)->request;
    return exception_of(request->done() ? request->status() : Status());
}

PyObject* request_abort(PyObject* object, PyObject*) {
    const RequestPtr request = self_of(object)->request;
    PyThreadState* state = PyEval_SaveThread();
    request->abort();
    PyEval_RestoreThread(state);
    Py_RETURN_NONE;
}

PyObject* request_result(PyObject* object, void*) {
    if (self_of(object)->request->done())
        return finished(self_of(object));
    PyErr_SetString(PyExc_ValueError, "result: the operation is still running; call wait() first");
    return nullptr;
}

PyObject* request_duration(PyObject* object, void*) {
    return PyFloat_FromDouble(static_cast<double>(self_of(object)->request->duration_ns()) * 1e-9);
}

PyObject* request_repr(PyObject* object) {
    const RequestPtr& request = self_of(object)->request;
    const char* state = !request->done() ? "running" : request->status().ok() ? "done" : "failed";
    return PyUnicode_FromFormat("<collectives.Request %llu %s>", static_cast<unsigned long long>(request->sequence()),
                                state);
}

void request_dealloc(PyObject* object) {
    PyRequest* self = self_of(object);
    if (self->request != nullptr && !self->request->done())
        dropped_requests().push_back({self->request, std::exchange(self->keep, nullptr)});
    Py_XDECREF(self->keep);
    Py_XDECREF(self->result);
    self->request.~RequestPtr();
    PyTypeObject* type = Py_TYPE(object);
    type->tp_free(object);
    Py_DECREF(type);
}

PyMethodDef methods[] = {
    {"wait", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&request_wait)), METH_FASTCALL | METH_KEYWORDS,
     "wait($self, timeout=None)\n--\n\nBlock until the operation has ended and return its result.\n\n"
     "timeout: seconds to wait, after which the operation and its group fail; None: until the operation's own "
     "deadline; 0: "
     "it fails unless it has ended or can end at once; negative: ValueError."},
    {"done", &request_done, METH_NOARGS, "done($self)\n--\n\nWhether the operation has ended, well or badly."},
    {"exception", &request_exception, METH_NOARGS,
     "exception($self)\n--\n\nThe error of a failed operation; None while it runs and after success."},
    {"abort", &request_abort, METH_NOARGS,
     "abort($self)\n--\n\nMake the operation fail, and with it the communicator."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef properties[] = {
    {"result", &request_result, nullptr, "The output array, or the source rank of a received message.", nullptr},
    {"duration", &request_duration, nullptr, "Seconds from start to end; 0 while running.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(&request_dealloc)},
    {Py_tp_repr, reinterpret_cast<void*>(&request_repr)},
    {Py_tp_methods, methods},
    {Py_tp_getset, properties},
    {Py_tp_doc, const_cast<char*>("An operation that was started with async_op=True and may still be running.")},
    {0, nullptr},
};

PyType_Spec spec = {"collectives._core.Request", sizeof(PyRequest), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

} // namespace

bool add_request_type(PyObject* module) {
    request_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
    return request_type != nullptr && PyModule_AddType(module, request_type) == 0;
}

PyObject* wrap_request(RequestPtr request, PyObject* keep, PyObject* result, int outputs) {
    PyObject* object = request_type->tp_alloc(request_type, 0);
    if (object == nullptr) { // the operation runs: its arrays must outlive it all the same
        dropped_requests().push_back({std::move(request), keep});
        return nullptr;
    }
    PyRequest* self = self_of(object);
    new (&self->request) RequestPtr(std::move(request));
    self->keep = keep;
    self->result = Py_XNewRef(result);
    self->outputs = outputs;
    self->marked = false;
    sweep_dropped_requests();
    return object;
}

PyObject* hand_out(RequestPtr request, PyObject* keep, PyObject* result, int outputs) {
    if (request->done()) {
        const Status status = request->status();
        if (status.code() == Code::invalid_argument || status.code() == Code::unsupported) {
            Py_DECREF(keep);
            return set_status_error(status);
        }
    }
    return wrap_request(std::move(request), keep, result, outputs);
}

bool wait_for(Request& request, int64_t timeout_ns) {
    Status status;
    if (!request.done()) {
        PyThreadState* state = PyEval_SaveThread();
        status = request.wait(timeout_ns);
        PyEval_RestoreThread(state);
    } else {
        status = request.status();
    }
    if (status.ok())
        return true;
    set_status_error(status);
    return false;
}

void sweep_dropped_requests(bool all) {
    constexpr size_t kLooks = 64; // more than a call can drop, so that what has ended goes sooner than it comes
    static size_t next = 0;
    auto& list = dropped_requests();
    for (size_t looks = all ? list.size() : kLooks; looks > 0 && !list.empty(); --looks) {
        if (next >= list.size())
            next = 0;
        if (!list[next].request->done()) {
            ++next;
            continue;
        }
        Dropped ended = std::move(list[next]);
        list[next] = std::move(list.back());
        list.pop_back();
        Py_DECREF(ended.keep); // may run Python code, which may come back here: the list is whole again
    }
}

} // namespace collectives
