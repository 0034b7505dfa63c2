// Packing of strided arrays and the refusals around it. See operand.h.
#include "bindings/operand.h"

namespace collectives {

bool Operand::refuse_read_only() const {
    PyErr_Format(PyExc_ValueError, "%s: the array is read-only, and the operation writes to it", argument_);
    return false;
}

bool Operand::pack(Use use, bool strided_output) {
    if (use != Use::read) {
        if (!strided_output) {
            PyErr_Format(PyExc_ValueError,
                         "%s: a strided output cannot be used with async_op=True, since nothing would copy the result "
                         "into it; pass a contiguous array, or call without async_op",
                         argument_);
            return false;
        }
        if (has_internal_overlap(object_)) {
            PyErr_Format(PyExc_ValueError,
                         "%s: several of its elements share one address (an expanded or broadcast "
                         "array), so it cannot be written to; pass a copy",
                         argument_);
            return false;
        }
    }
    packed_ = packed_copy(object_);
    return packed_ != nullptr && view_array(packed_, argument_, &view);
}

bool Operand::check_apart(const Operand& input) const {
    if (packed_ == nullptr && input.packed_ == nullptr)
        return true;
    if (object_ == input.object_)
        return true;
    if (original_begin_ >= input.original_end_ || input.original_begin_ >= original_end_)
        return true;
    PyErr_Format(PyExc_ValueError,
                 "%s: shares memory with %s; pass the same object for an operation in place, or arrays "
                 "that lie apart",
                 argument_, input.argument_);
    return false;
}

} // namespace collectives
