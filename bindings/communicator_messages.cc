// The methods of collectives.Communicator that send and receive messages. See py_communicator.h.
#include <utility>
#include <vector>

#include "bindings/operand.h"
#include "bindings/py_communicator.h"
#include "bindings/py_request.h"

namespace collectives {
namespace {

using Use = Operand::Use;

constexpr int64_t kLastTag = 0xffffffff;

int64_t bytes_of(const ArrayView& view) { return view.count * static_cast<int64_t>(size_of(view.dtype)); }

struct Message {
    Operand array;
    int64_t peer = kAnySource;
    int64_t tag = 0;
    int64_t timeout_ns = -1;
    bool async = false;

    bool take(PyCommunicator* self, const char* peer_name, PyObject* peer_value, PyObject* tag_value) {
        return (absent(peer_value) || parse_integer(peer_value, peer_name, 0, self->world_size - 1, &peer)) &&
               (tag_value == nullptr || parse_integer(tag_value, "tag", 0, kLastTag, &tag));
    }
};

/// Waits for a message. Should the wait end before the message does (Ctrl-C), the array is kept until it has.
bool wait_for_message(const RequestPtr& request, const Operand& array) {
    if (wait_for(*request, -1))
        return true;
    if (request->done())
        return false;
    PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
    PyErr_Fetch(&type, &value, &traceback);
    Py_XDECREF(wrap_request(request, PyTuple_Pack(1, array.owner()), Py_None, 0)); // dropped at once, while running
    PyErr_Restore(type, value, traceback);
    return false;
}

PyObject* finish_message(RequestPtr request, Message& message, bool received) {
    if (message.async)
        return hand_out(std::move(request), PyTuple_Pack(1, message.array.owner()), received ? nullptr : Py_None,
                        received ? 1 : 0);
    if (!wait_for_message(request, message.array))
        return nullptr;
    sweep_dropped_requests();
    if (!received)
        Py_RETURN_NONE;
    return message.array.finish() ? PyLong_FromLong(request->source()) : nullptr;
}

Signature send_signature{"send", 2, 5, {"array", "destination", "tag", "async_op", "timeout"}};

PyObject* send(PyCommunicator* self, PyObject** values) {
    Message message;
    if (!parse_flag(values[3], "async_op", &message.async) ||
        !message.array.take(values[0], "array", Use::read, true) || !parse_timeout(values[4], &message.timeout_ns) ||
        !message.take(self, "destination", values[1], values[2]))
        return nullptr;
    if (absent(values[1])) {
        PyErr_SetString(PyExc_TypeError, "destination: expected a rank, got None");
        return nullptr;
    }
    const ArrayView& view = message.array.view;
    RequestPtr request;
    PyThreadState* state = PyEval_SaveThread();
    request = self->communicator->start_send(view.data, bytes_of(view), static_cast<int>(message.peer),
                                             static_cast<uint32_t>(message.tag), message.timeout_ns);
    PyEval_RestoreThread(state);
    return finish_message(std::move(request), message, false);
}

Signature recv_signature{"recv", 1, 5, {"array", "source", "tag", "async_op", "timeout"}};

PyObject* recv(PyCommunicator* self, PyObject** values) {
    Message message;
    if (!parse_flag(values[3], "async_op", &message.async) ||
        !message.array.take(values[0], "array", Use::write, !message.async) ||
        !parse_timeout(values[4], &message.timeout_ns) || !message.take(self, "source", values[1], values[2]))
        return nullptr;
    const ArrayView& view = message.array.view;
    RequestPtr request;
    PyThreadState* state = PyEval_SaveThread();
    request = self->communicator->start_recv(view.data, bytes_of(view), static_cast<int>(message.peer),
                                             static_cast<uint32_t>(message.tag), message.timeout_ns);
    PyEval_RestoreThread(state);
    return finish_message(std::move(request), message, true);
}

const MethodRow rows[] = {
    {&send_signature, &fast_method<send_signature, &send>, "Send an array to one rank."},
    {&recv_signature, &fast_method<recv_signature, &recv>,
     "Receive an array from one rank, or from any; returns the rank it came from."},
};

} // namespace

bool intern_message_signatures() { return intern_all(rows); }

void add_message_methods(std::vector<PyMethodDef>* table) { append_all(rows, table); }

} // namespace collectives
