// The Python type behind collectives.Communicator: its life, its groups, its properties. What moves data is in
// communicator_calls.cc. See communicator.h.
#include "bindings/communicator.h"

#include <pybind11/stl.h>
#include <structmember.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "algorithms/call.h"
#include "base/clock.h"
#include "bindings/group_log.h"
#include "bindings/py_communicator.h"
#include "bindings/py_request.h"
#include "bindings/python_bootstrap.h"
#include "bindings/store_bootstrap.h"
#include "bindings/tensor_view.h"

namespace py = pybind11;

namespace collectives {
namespace {

PyTypeObject* communicator_type = nullptr;

// ---- groups ---------------------------------------------------------------------------------------------------------

/// The name of the next group made out of this one; the same on all of its ranks, since all make them in one order.
std::string child_name(PyCommunicator* self, const char* how) {
    return self->communicator->config().name + "/" + how + std::to_string(self->children++);
}

PyObject* wrap_child(PyCommunicator* self, const Status& status, std::shared_ptr<Communicator> child) {
    if (!status.ok())
        return set_status_error(status);
    if (child == nullptr)
        Py_RETURN_NONE;
    return wrap_communicator(std::move(child), self->bootstrap, Py_TYPE(reinterpret_cast<PyObject*>(self)));
}

constexpr int64_t kIntMax = 0x7fffffff;

Signature split_signature{"split", 1, 2, {"color", "key"}};

PyObject* split(PyCommunicator* self, PyObject** values) {
    int64_t color = -1, key = 0;
    if ((!absent(values[0]) && !parse_integer(values[0], "color", -1, kIntMax, &color)) ||
        (values[1] != nullptr && !parse_integer(values[1], "key", -kIntMax, kIntMax, &key)))
        return nullptr;
    std::string name = child_name(self, "split");
    if (color >= 0)
        name += "." + std::to_string(color);
    std::shared_ptr<Communicator> child;
    Status status;
    {
        py::gil_scoped_release release;
        status = self->communicator->split(static_cast<int>(color), static_cast<int>(key), name, &child);
    }
    return wrap_child(self, status, std::move(child));
}

Signature shrink_signature{"shrink", 1, 1, {"exclude"}};

PyObject* shrink(PyCommunicator* self, PyObject** values) {
    PyObject* sequence = PySequence_Fast(values[0], "exclude: expected a sequence of ranks");
    if (sequence == nullptr)
        return nullptr;
    const py::object owner = py::reinterpret_steal<py::object>(sequence);
    std::vector<int> exclude;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence); ++i) {
        int64_t rank = 0;
        if (!parse_integer(PySequence_Fast_GET_ITEM(sequence, i), "exclude", 0, self->world_size - 1, &rank))
            return nullptr;
        exclude.push_back(static_cast<int>(rank));
    }
    const std::string name = child_name(self, "shrink");
    std::shared_ptr<Communicator> child;
    Status status;
    {
        py::gil_scoped_release release;
        status = self->communicator->shrink(exclude, name, &child);
    }
    return wrap_child(self, status, std::move(child));
}

// ---- the end --------------------------------------------------------------------------------------------------------

Signature abort_signature{"abort", 0, 1, {"reason"}};

PyObject* abort_group(PyCommunicator* self, PyObject** values) {
    std::string reason = "abort() was called";
    if (!absent(values[0]))
        reason = py::cast<std::string>(py::handle(values[0]));
    {
        py::gil_scoped_release release;
        self->communicator->abort(reason);
    }
    Py_RETURN_NONE;
}

constexpr int64_t kCloseTimeoutNs = 10 * kSecond;

Signature close_signature{"close", 0, 1, {"timeout"}};

PyObject* close_group(PyCommunicator* self, PyObject** values) {
    int64_t timeout_ns = -1;
    if (!parse_timeout(values[0], &timeout_ns))
        return nullptr;
    if (timeout_ns < 0)
        timeout_ns = kCloseTimeoutNs;
    Status status;
    {
        py::gil_scoped_release release;
        status = self->communicator->close(timeout_ns);
    }
    sweep_dropped_requests(true);
    if (!status.ok())
        return set_status_error(status);
    Py_RETURN_NONE;
}

PyObject* exception(PyObject* object, PyObject*) {
    return exception_of(communicator_of(object)->communicator->error());
}

Signature tune_signature{"tune", 0, 1, {"max_bytes"}};

PyObject* tune(PyCommunicator* self, PyObject** values) {
    int64_t max_bytes = 16 << 20;
    if (values[0] != nullptr && !parse_integer(values[0], "max_bytes", 8, int64_t(1) << 32, &max_bytes))
        return nullptr;
    std::string path;
    Status status;
    {
        py::gil_scoped_release release;
        status = self->communicator->tune(max_bytes, &path);
    }
    if (!status.ok())
        return set_status_error(status);
    if (path.empty())
        Py_RETURN_NONE;
    return PyUnicode_DecodeFSDefault(path.c_str());
}

// ---- for people -----------------------------------------------------------------------------------------------------

PyObject* describe_group(PyObject* object, PyObject*) {
    return PyUnicode_FromString(communicator_of(object)->communicator->describe_group().c_str());
}

bool parse_name(PyObject* value, const char* what, std::string* out) {
    const char* text = PyUnicode_Check(value) ? PyUnicode_AsUTF8(value) : nullptr;
    if (text == nullptr) {
        PyErr_Format(PyExc_TypeError, "%s: expected its name as a str", what);
        return false;
    }
    *out = text;
    return true;
}

bool parse_collective(PyObject* value, Collective* out) {
    std::string name, names;
    if (!parse_name(value, "collective", &name))
        return false;
    for (int i = 0; i < kCollectiveCount; ++i) {
        *out = static_cast<Collective>(i);
        if (name == collective_name(*out))
            return true;
        names += (i > 0 ? ", " : "") + std::string(collective_name(*out));
    }
    PyErr_Format(PyExc_ValueError, "collective: none is named '%s'; there are %s", name.c_str(), names.c_str());
    return false;
}

bool parse_dtype_name(PyObject* value, DType* out) {
    std::string name;
    if (!parse_name(value, "dtype", &name))
        return false;
    for (const DTypeInfo& row : kDTypes) {
        *out = row.dtype;
        if (name == row.name)
            return true;
    }
    PyErr_Format(PyExc_ValueError, "dtype: none is named '%s'; `collectives info` lists them", name.c_str());
    return false;
}

Signature plan_signature{"describe_plan", 3, 5, {"collective", "dtype", "count", "op", "root"}};

PyObject* describe_plan(PyCommunicator* self, PyObject** values) {
    Call call;
    int64_t root = 0;
    if (!parse_collective(values[0], &call.kind) || !parse_dtype_name(values[1], &call.dtype) ||
        !parse_integer(values[2], "count", 0, INT64_MAX / 16 / self->world_size, &call.in.count) ||
        !parse_op(values[3], &call) ||
        (values[4] != nullptr && !parse_integer(values[4], "root", 0, self->world_size - 1, &root)))
        return nullptr;
    const bool reduces = call.kind == Collective::all_reduce || call.kind == Collective::reduce ||
                         call.kind == Collective::reduce_scatter;
    if (reduces && !supports(call.op, call.dtype)) {
        PyErr_Format(PyExc_ValueError, "%s: %s", collective_name(call.kind),
                     std::string(why_unsupported(call.op, call.dtype)).c_str());
        return nullptr;
    }
    call.root = static_cast<int>(root);
    call.out.count = call.in.count;
    return PyUnicode_FromString(self->communicator->describe_plan(call).c_str());
}

// ---- properties -----------------------------------------------------------------------------------------------------

PyObject* get_name(PyObject* object, void*) {
    return PyUnicode_FromString(communicator_of(object)->communicator->config().name.c_str());
}

PyObject* get_sequence(PyObject* object, void*) {
    return PyLong_FromUnsignedLongLong(communicator_of(object)->communicator->sequence());
}

PyObject* get_timeout(PyObject* object, void*) {
    const int64_t timeout_ns = communicator_of(object)->timeout_ns;
    return PyFloat_FromDouble(timeout_ns == kForever ? Py_HUGE_VAL : static_cast<double>(timeout_ns) * 1e-9);
}

int set_timeout(PyObject* object, PyObject* value, void*) {
    int64_t timeout_ns = -1;
    if (absent(value)) {
        PyErr_SetString(PyExc_TypeError, "timeout: expected seconds as a number");
        return -1;
    }
    if (!parse_timeout(value, &timeout_ns))
        return -1;
    communicator_of(object)->timeout_ns = timeout_ns;
    communicator_of(object)->communicator->set_timeout(timeout_ns);
    return 0;
}

PyObject* communicator_repr(PyObject* object) {
    PyCommunicator* self = communicator_of(object);
    return PyUnicode_FromFormat("<collectives.Communicator '%s' rank %d of %d%s>",
                                self->communicator->config().name.c_str(), self->rank, self->world_size,
                                self->communicator->error().ok() ? "" : " (failed)");
}

// ---- life -----------------------------------------------------------------------------------------------------------

void communicator_dealloc(PyObject* object) {
    PyCommunicator* self = communicator_of(object);
    if (self->weak_references != nullptr)
        PyObject_ClearWeakRefs(object);
    {
        py::gil_scoped_release release; // the last reference may have to wait for the progress thread
        self->communicator.~shared_ptr();
        self->bootstrap.~shared_ptr();
    }
    PyTypeObject* type = Py_TYPE(object);
    type->tp_free(object);
    Py_DECREF(type);
}

std::vector<PyMethodDef>& method_table() { // lives as long as the type
    static auto* table = new std::vector<PyMethodDef>;
    return *table;
}

void fill_method_table() {
    auto& table = method_table();
    add_call_methods(&table);
    add_message_methods(&table);
    table.push_back(method_row("split", &fast_method<split_signature, &split>,
                               "split($self, color, key=0)\n--\n\nA new group of the ranks with the same color."));
    table.push_back(method_row("shrink", &fast_method<shrink_signature, &shrink>,
                               "shrink($self, exclude)\n--\n\nA new group without the excluded ranks."));
    table.push_back(method_row("abort", &fast_method<abort_signature, &abort_group>,
                               "abort($self, reason=None)\n--\n\nFail the group, on this rank and on its peers."));
    table.push_back(
        method_row("close", &fast_method<close_signature, &close_group>,
                   "close($self, timeout=None)\n--\n\nEnd the group and let go of its memory; waits up to "
                   "`timeout` seconds (None: 10) for what is under way and for messages that have not left."));
    table.push_back(method_row("describe_plan", &fast_method<plan_signature, &describe_plan>,
                               "describe_plan($self, collective, dtype, count, op='sum', root=0)\n--\n\n"
                               "What would run for a call: each algorithm on a line."));
    table.push_back(method_row("tune", &fast_method<tune_signature, &tune>,
                               "tune($self, max_bytes=16777216)\n--\n\n"
                               "Time every algorithm between hosts, and choose by that from now on."));
    table.push_back({"describe", &describe_group, METH_NOARGS,
                     "describe($self)\n--\n\nWhat the group runs on and why, on one line."});
    table.push_back({"exception", &exception, METH_NOARGS,
                     "exception($self)\n--\n\nThe first failure of the group; None while it works."});
    table.push_back({nullptr, nullptr, 0, nullptr});
}

PyMemberDef members[] = {
    {"rank", T_INT, offsetof(PyCommunicator, rank), READONLY, "This process's index in the group."},
    {"world_size", T_INT, offsetof(PyCommunicator, world_size), READONLY, "The number of ranks in the group."},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(PyCommunicator, weak_references), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyGetSetDef properties[] = {
    {"name", &get_name, nullptr, "The group's name in errors.", nullptr},
    {"sequence", &get_sequence, nullptr, "The number of collectives issued so far.", nullptr},
    {"timeout", &get_timeout, &set_timeout, "Seconds that an operation may take when it is given no timeout.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

bool add_communicator_type(PyObject* module) {
    if (!intern_call_signatures() || !intern_message_signatures() || !split_signature.intern() ||
        !shrink_signature.intern() || !plan_signature.intern() || !tune_signature.intern() ||
        !abort_signature.intern() || !close_signature.intern())
        return false;
    fill_method_table();
    PyType_Slot slots[] = {
        {Py_tp_dealloc, reinterpret_cast<void*>(&communicator_dealloc)},
        {Py_tp_repr, reinterpret_cast<void*>(&communicator_repr)},
        {Py_tp_methods, method_table().data()},
        {Py_tp_members, members},
        {Py_tp_getset, properties},
        {Py_tp_doc, const_cast<char*>("A group of ranks; collectives.Communicator adds the ways to make one.")},
        {0, nullptr},
    };
    PyType_Spec spec = {"collectives._core.Communicator", sizeof(PyCommunicator), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
    communicator_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
    return communicator_type != nullptr && PyModule_AddType(module, communicator_type) == 0;
}

// ---- making one -----------------------------------------------------------------------------------------------------

std::shared_ptr<Bootstrap> make_bootstrap(const py::object& meeting, const CommunicatorConfig& config) {
    if (py::isinstance<c10d::Store>(meeting))
        return std::make_shared<StoreBootstrap>(meeting.cast<StorePtr>(), config.rank, config.world_size, config.name);
    return std::make_shared<PythonBootstrap>(meeting);
}

/// create_communicator(cls, meeting, rank, ...): `meeting` is a torch store, or an object as PythonBootstrap takes it.
py::object create_communicator(const py::type& type, const py::object& meeting, CommunicatorConfig config,
                               const py::object& timeout) {
    if (!parse_timeout(timeout.ptr(), &config.timeout_ns))
        throw py::error_already_set();
    if (config.timeout_ns < 0)
        config.timeout_ns = CommunicatorConfig().timeout_ns;
    if (PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(type.ptr()), communicator_type) == 0)
        throw py::type_error("create_communicator: not a subclass of Communicator");
    const std::shared_ptr<Bootstrap> bootstrap = make_bootstrap(meeting, config);
    std::shared_ptr<Communicator> communicator;
    Status status;
    {
        py::gil_scoped_release release;
        Node* node = nullptr;
        status = process_node(&node);
        if (status.ok())
            status = Communicator::create(*node, config, *bootstrap, &communicator);
    }
    if (!status.ok())
        throw_status(status);
    PyObject* object =
        wrap_communicator(std::move(communicator), bootstrap, reinterpret_cast<PyTypeObject*>(type.ptr()));
    if (object == nullptr)
        throw py::error_already_set();
    return py::reinterpret_steal<py::object>(object);
}

py::object create_from_python(const py::type& type, const py::object& meeting, int rank, int world_size,
                              std::string name, const py::object& timeout, std::vector<std::string> transports,
                              std::string algorithm, bool deterministic) {
    CommunicatorConfig config;
    config.rank = rank;
    config.world_size = world_size;
    config.name = std::move(name);
    config.transports = std::move(transports);
    config.algorithm = std::move(algorithm);
    config.deterministic = deterministic;
    return create_communicator(type, meeting, std::move(config), timeout);
}

} // namespace

PyObject* wrap_communicator(std::shared_ptr<Communicator> communicator, std::shared_ptr<Bootstrap> bootstrap,
                            PyTypeObject* type) {
    log_group(*communicator);
    PyObject* object = type->tp_alloc(type, 0);
    if (object == nullptr)
        return nullptr;
    PyCommunicator* self = communicator_of(object);
    self->rank = communicator->rank();
    self->world_size = communicator->world_size();
    self->timeout_ns = communicator->config().timeout_ns;
    new (&self->communicator) std::shared_ptr<Communicator>(std::move(communicator));
    new (&self->bootstrap) std::shared_ptr<Bootstrap>(std::move(bootstrap));
    return object;
}

const char* documentation_of(const MethodRow& row) {
    static auto* texts = new std::deque<std::string>; // addresses stay
    const auto& names = row.signature->names;
    const bool takes_timeout = std::any_of(names, names + row.signature->count,
                                           [](const char* name) { return std::string_view(name) == "timeout"; });
    texts->push_back(row.doc);
    if (takes_timeout)
        texts->back() +=
            "\n\ntimeout: seconds that it may take; None: as many as the group's `timeout`; 0: it fails unless "
            "it can end at once; math.inf: no end; negative: ValueError.";
    return texts->back().c_str();
}

void bind_communicator(py::module_& module) {
    load_numpy();
    if (!add_request_type(module.ptr()) || !add_communicator_type(module.ptr()))
        throw py::error_already_set();
    module.def("create_communicator", &create_from_python, py::arg("type"), py::arg("meeting"), py::arg("rank"),
               py::arg("world_size"), py::kw_only(), py::arg("name") = "world", py::arg("timeout") = py::none(),
               py::arg("transports") = std::vector<std::string>(), py::arg("algorithm") = "",
               py::arg("deterministic") = false, "Join a group; collective over the meeting.");
}

} // namespace collectives
