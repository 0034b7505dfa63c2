// The methods of collectives.Communicator that move data: arguments -> Call -> engine -> result. See py_communicator.h.
//
// The way of a small synchronous call allocates nothing here: views, counts and the call live on the stack.
#include <utility>
#include <vector>

#include "bindings/operand.h"
#include "bindings/py_communicator.h"
#include "bindings/py_request.h"

namespace collectives {
namespace {

using Use = Operand::Use;

struct Operation {
    explicit Operation(PyCommunicator* self, Collective kind) : self(self) { call.kind = kind; }

    bool take_common(PyObject* async_value, PyObject* timeout_value) {
        return parse_flag(async_value, "async_op", &async) && parse_timeout(timeout_value, &timeout_ns);
    }

    bool take_root(PyObject* value) {
        if (value == nullptr)
            return true; // 0
        int64_t root = 0;
        if (!parse_integer(value, "root", 0, self->world_size - 1, &root))
            return false;
        call.root = static_cast<int>(root);
        return true;
    }

    bool at_root() const { return self->rank == call.root; }

    PyCommunicator* self;
    Call call;
    Operand in;
    Operand out;
    PyObject* result = Py_None; // borrowed
    bool async = false;
    int64_t timeout_ns = -1;
    std::vector<int64_t> in_counts; // stay empty, and so cost nothing, where blocks are even
    std::vector<int64_t> out_counts;
};

// ---- checks that name the arguments ---------------------------------------------------------------------------------

bool same_dtype(const ArrayView& out, const ArrayView& in) {
    if (out.dtype == in.dtype) [[likely]]
        return true;
    PyErr_Format(PyExc_ValueError, "out: its dtype is %s, that of array is %s", name_of(out.dtype), name_of(in.dtype));
    return false;
}

bool has_elements(const char* name, int64_t count, int64_t wanted, const char* why) {
    if (count == wanted) [[likely]]
        return true;
    PyErr_Format(PyExc_ValueError, "%s: has %lld elements, but %s %lld", name, static_cast<long long>(count), why,
                 static_cast<long long>(wanted));
    return false;
}

bool same_rows(const ArrayView& out, const ArrayView& in) {
    if (out.row_elements == in.row_elements)
        return true;
    PyErr_Format(PyExc_ValueError, "out: one row (index of dimension 0) has %lld elements, one row of array %lld",
                 static_cast<long long>(out.row_elements), static_cast<long long>(in.row_elements));
    return false;
}

Blocks block(const ArrayView& view) {
    Blocks blocks;
    blocks.base = view.data;
    blocks.count = view.count;
    return blocks;
}

Blocks blocks_of(const ArrayView& view, int64_t count_each) {
    Blocks blocks;
    blocks.base = view.data;
    blocks.count = count_each;
    return blocks;
}

Blocks blocks_of(const ArrayView& view, const std::vector<int64_t>& counts) {
    Blocks blocks;
    blocks.base = view.data;
    blocks.counts = counts.data();
    return blocks;
}

// ---- running --------------------------------------------------------------------------------------------------------

/// The arrays that the core works on, outputs first.
PyObject* keep_arrays(const Operand& out, const Operand& in) {
    if (out.given() && in.given() && out.owner() != in.owner())
        return PyTuple_Pack(2, out.owner(), in.owner());
    if (out.given())
        return PyTuple_Pack(1, out.owner());
    if (in.given())
        return PyTuple_Pack(1, in.owner());
    return PyTuple_New(0);
}

PyObject* run_now(Operation& operation) {
    Communicator& communicator = *operation.self->communicator;
    PyThreadState* state = PyEval_SaveThread();
    const Status status = communicator.run(operation.call, operation.timeout_ns);
    PyEval_RestoreThread(state);
    if (!status.ok()) [[unlikely]]
        return set_status_error(status);
    if (operation.out.given() && !operation.out.finish())
        return nullptr;
    sweep_dropped_requests();
    return Py_NewRef(operation.result);
}

PyObject* start(Operation& operation) {
    PyObject* keep = keep_arrays(operation.out, operation.in);
    if (keep == nullptr)
        return nullptr;
    Communicator& communicator = *operation.self->communicator;
    RequestPtr request;
    PyThreadState* state = PyEval_SaveThread();
    request = communicator.start(operation.call, operation.timeout_ns);
    PyEval_RestoreThread(state);
    return hand_out(std::move(request), keep, operation.result, operation.out.given() ? 1 : 0);
}

PyObject* perform(Operation& operation) {
    const Call& call = operation.call;
    if (call.factor_im != 0 && info(call.dtype).kind != DTypeKind::complex) [[unlikely]] {
        PyErr_Format(PyExc_ValueError, "op: a complex factor of premul_sum needs complex arrays, and these are %s",
                     name_of(call.dtype));
        return nullptr;
    }
    return operation.async ? start(operation) : run_now(operation);
}

// ---- the collectives ------------------------------------------------------------------------------------------------

Signature all_reduce_signature{"all_reduce", 1, 6, {"array", "op", "out", "compressor", "async_op", "timeout"}};

PyObject* all_reduce(PyCommunicator* self, PyObject** values) {
    Operation operation(self, Collective::all_reduce);
    if (!parse_op(values[1], &operation.call) || !operation.take_common(values[4], values[5]))
        return nullptr;
    if (!absent(values[3])) {
        PyErr_SetString(PyExc_ValueError, "compressor: compressed collectives are not part of this version; pass None");
        return nullptr;
    }
    const bool in_place = absent(values[2]) || values[2] == values[0];
    Operand& out = operation.out;
    if (!out.take(in_place ? values[0] : values[2], in_place ? "array" : "out", in_place ? Use::read_write : Use::write,
                  !operation.async))
        return nullptr;
    operation.call.dtype = out.view.dtype;
    operation.call.out = block(out.view);
    operation.call.in = operation.call.out;
    operation.result = out.object();
    if (!in_place) {
        Operand& in = operation.in;
        if (!in.take(values[0], "array", Use::read, true) || !same_dtype(out.view, in.view) || !out.check_apart(in) ||
            !has_elements("out", out.view.count, in.view.count, "must have as many as array:"))
            return nullptr;
        operation.call.in = block(in.view);
    }
    return perform(operation);
}

Signature reduce_scatter_signature{"reduce_scatter", 2, 6, {"out", "array", "op", "counts", "async_op", "timeout"}};

PyObject* reduce_scatter(PyCommunicator* self, PyObject** values) {
    Operation operation(self, Collective::reduce_scatter);
    Operand &out = operation.out, &in = operation.in;
    if (!parse_op(values[2], &operation.call) || !operation.take_common(values[4], values[5]) ||
        !out.take(values[0], "out", Use::write, !operation.async) || !in.take(values[1], "array", Use::read, true) ||
        !same_dtype(out.view, in.view) || !out.check_apart(in))
        return nullptr;
    operation.call.dtype = in.view.dtype;
    operation.call.out = block(out.view);
    operation.result = out.object();
    if (absent(values[3])) {
        if (!has_elements("array", in.view.count, out.view.count * self->world_size,
                          "must have the world size times those of out (or give counts):"))
            return nullptr;
        operation.call.in = blocks_of(in.view, out.view.count);
    } else {
        auto& counts = operation.in_counts;
        if (!parse_counts(values[3], "counts", self->world_size, in.view.row_elements, in.view.rows, "rows of array",
                          &counts) ||
            !has_elements("out", out.view.count, counts[static_cast<size_t>(self->rank)],
                          "must have those of this rank's entry of counts:"))
            return nullptr;
        operation.call.in = blocks_of(in.view, counts);
    }
    return perform(operation);
}

Signature all_gather_signature{"all_gather", 2, 5, {"out", "array", "counts", "async_op", "timeout"}};

PyObject* all_gather(PyCommunicator* self, PyObject** values) {
    Operation operation(self, Collective::all_gather);
    Operand &out = operation.out, &in = operation.in;
    if (!operation.take_common(values[3], values[4]) || !out.take(values[0], "out", Use::write, !operation.async) ||
        !in.take(values[1], "array", Use::read, true) || !same_dtype(out.view, in.view) || !out.check_apart(in))
        return nullptr;
    operation.call.dtype = in.view.dtype;
    operation.call.in = block(in.view);
    operation.result = out.object();
    if (absent(values[2])) {
        if (!has_elements("out", out.view.count, in.view.count * self->world_size,
                          "must have the world size times those of array (or give counts):"))
            return nullptr;
        operation.call.out = blocks_of(out.view, in.view.count);
    } else {
        auto& counts = operation.out_counts;
        if (!parse_counts(values[2], "counts", self->world_size, out.view.row_elements, out.view.rows, "rows of out",
                          &counts) ||
            !has_elements("array", in.view.count, counts[static_cast<size_t>(self->rank)],
                          "must have those of this rank's entry of counts:"))
            return nullptr;
        operation.call.out = blocks_of(out.view, counts);
    }
    return perform(operation);
}

/// One side of an all_to_all: even blocks where `splits` is absent, else those.
bool take_splits(PyObject* splits, const char* splits_name, const char* array_name, const char* rows_name,
                 const ArrayView& view, int world_size, std::vector<int64_t>* counts, Blocks* blocks) {
    if (!absent(splits)) {
        if (!parse_counts(splits, splits_name, world_size, view.row_elements, view.rows, rows_name, counts))
            return false;
        *blocks = blocks_of(view, *counts);
        return true;
    }
    if (view.rows % world_size != 0) {
        PyErr_Format(PyExc_ValueError, "%s: its %lld rows (dimension 0) do not divide evenly among %d ranks; give %s",
                     array_name, static_cast<long long>(view.rows), world_size, splits_name);
        return false;
    }
    *blocks = blocks_of(view, view.rows / world_size * view.row_elements);
    return true;
}

Signature all_to_all_signature{"all_to_all", 2, 6, {"out", "array", "out_splits", "in_splits", "async_op", "timeout"}};

PyObject* all_to_all(PyCommunicator* self, PyObject** values) {
    Operation operation(self, Collective::all_to_all);
    Operand &out = operation.out, &in = operation.in;
    if (!operation.take_common(values[4], values[5]) || !out.take(values[0], "out", Use::write, !operation.async) ||
        !in.take(values[1], "array", Use::read, true) || !same_dtype(out.view, in.view) || !out.check_apart(in) ||
        !same_rows(out.view, in.view) ||
        !take_splits(values[2], "out_splits", "out", "rows of out", out.view, self->world_size, &operation.out_counts,
                     &operation.call.out) ||
        !take_splits(values[3], "in_splits", "array", "rows of array", in.view, self->world_size, &operation.in_counts,
                     &operation.call.in))
        return nullptr;
    if (absent(values[2]) && absent(values[3]) &&
        !has_elements("out", out.view.count, in.view.count, "must have as many as array (or give splits):"))
        return nullptr;
    operation.call.dtype = in.view.dtype;
    operation.result = out.object();
    return perform(operation);
}

Signature broadcast_signature{"broadcast", 1, 4, {"array", "root", "async_op", "timeout"}};

PyObject* broadcast(PyCommunicator* self, PyObject** values) {
    Operation operation(self, Collective::broadcast);
    if (!operation.take_root(values[1]) || !operation.take_common(values[2], values[3]))
        return nullptr;
    const bool reads = operation.at_root();
    Operand& array = reads ? operation.in : operation.out;
    if (!array.take(values[0], "array", reads ? Use::read : Use::write, !operation.async))
        return nullptr;
    operation.call.dtype = array.view.dtype;
    operation.call.in = operation.call.out = block(array.view);
    operation.result = array.object();
    return perform(operation);
}

Signature reduce_signature{"reduce", 1, 6, {"array", "root", "op", "out", "async_op", "timeout"}};

PyObject* reduce(PyCommunicator* self, PyObject** values) {
    Operation operation(self, Collective::reduce);
    Operand &out = operation.out, &in = operation.in;
    if (!operation.take_root(values[1]) || !parse_op(values[2], &operation.call) ||
        !operation.take_common(values[4], values[5]))
        return nullptr;
    const bool in_place = operation.at_root() && (absent(values[3]) || values[3] == values[0]);
    Operand& source = in_place ? out : in;
    if (!source.take(values[0], "array", in_place ? Use::read_write : Use::read, !(in_place && operation.async)))
        return nullptr;
    operation.call.dtype = source.view.dtype;
    operation.call.in = operation.call.out = block(source.view);
    if (operation.at_root() && !in_place) {
        if (!out.take(values[3], "out", Use::write, !operation.async) || !same_dtype(out.view, in.view) ||
            !out.check_apart(in) || !has_elements("out", out.view.count, in.view.count, "must have as many as array:"))
            return nullptr;
        operation.call.out = block(out.view);
    }
    if (operation.at_root())
        operation.result = out.object();
    return perform(operation);
}

Signature gather_signature{"gather", 2, 5, {"out", "array", "root", "async_op", "timeout"}};

PyObject* gather(PyCommunicator* self, PyObject** values) {
    Operation operation(self, Collective::gather);
    Operand &out = operation.out, &in = operation.in;
    if (!operation.take_root(values[2]) || !operation.take_common(values[3], values[4]) ||
        !in.take(values[1], "array", Use::read, true))
        return nullptr;
    operation.call.dtype = in.view.dtype;
    operation.call.in = block(in.view);
    operation.call.out.count = in.view.count;
    if (operation.at_root()) {
        if (absent(values[0])) {
            PyErr_SetString(PyExc_ValueError, "out: the root must give an array to gather into; others may pass None");
            return nullptr;
        }
        if (!out.take(values[0], "out", Use::write, !operation.async) || !same_dtype(out.view, in.view) ||
            !out.check_apart(in) ||
            !has_elements("out", out.view.count, in.view.count * self->world_size,
                          "must have the world size times those of array:"))
            return nullptr;
        operation.call.out.base = out.view.data;
        operation.result = out.object();
    }
    return perform(operation);
}

Signature scatter_signature{"scatter", 1, 5, {"out", "array", "root", "async_op", "timeout"}};

PyObject* scatter(PyCommunicator* self, PyObject** values) {
    Operation operation(self, Collective::scatter);
    Operand &out = operation.out, &in = operation.in;
    if (!operation.take_root(values[2]) || !operation.take_common(values[3], values[4]) ||
        !out.take(values[0], "out", Use::write, !operation.async))
        return nullptr;
    operation.call.dtype = out.view.dtype;
    operation.call.out = block(out.view);
    operation.call.in.count = out.view.count;
    operation.result = out.object();
    if (operation.at_root()) {
        if (absent(values[1])) {
            PyErr_SetString(PyExc_ValueError, "array: the root must give the array to scatter; others may pass None");
            return nullptr;
        }
        if (!in.take(values[1], "array", Use::read, true) || !same_dtype(out.view, in.view) || !out.check_apart(in) ||
            !has_elements("array", in.view.count, out.view.count * self->world_size,
                          "must have the world size times those of out:"))
            return nullptr;
        operation.call.in.base = in.view.data;
    }
    return perform(operation);
}

Signature barrier_signature{"barrier", 0, 2, {"async_op", "timeout"}};

PyObject* barrier(PyCommunicator* self, PyObject** values) {
    Operation operation(self, Collective::barrier);
    if (!operation.take_common(values[0], values[1]))
        return nullptr;
    return perform(operation);
}

// The documentation for readers is in _core.pyi; these are for help() on the C type.
const MethodRow rows[] = {
    {&all_reduce_signature, &fast_method<all_reduce_signature, &all_reduce>,
     "Reduce the arrays of all ranks; every rank gets the result, in out or in place."},
    {&reduce_scatter_signature, &fast_method<reduce_scatter_signature, &reduce_scatter>,
     "Reduce the arrays of all ranks; rank i gets block i of the result in out."},
    {&all_gather_signature, &fast_method<all_gather_signature, &all_gather>,
     "Put the arrays of all ranks after one another, in rank order, in every rank's out."},
    {&all_to_all_signature, &fast_method<all_to_all_signature, &all_to_all>,
     "Send block i of array to rank i; block i of out comes from rank i."},
    {&broadcast_signature, &fast_method<broadcast_signature, &broadcast>, "Give the root's array to all ranks."},
    {&reduce_signature, &fast_method<reduce_signature, &reduce>,
     "Reduce the arrays of all ranks; the root gets the result, in out or in place."},
    {&gather_signature, &fast_method<gather_signature, &gather>,
     "Put the arrays of all ranks after one another, in rank order, in the root's out."},
    {&scatter_signature, &fast_method<scatter_signature, &scatter>,
     "Send block i of the root's array to rank i, into out."},
    {&barrier_signature, &fast_method<barrier_signature, &barrier>, "Return when all ranks have called it."},
};

} // namespace

bool intern_call_signatures() { return intern_all(rows); }

void add_call_methods(std::vector<PyMethodDef>* table) { append_all(rows, table); }

} // namespace collectives
