// Operand: one array argument of an operation, made ready for the core: viewed, refused, or packed when it is strided.
// Included by communicator.cc only. Everything needs the GIL.
#pragma once

#include <Python.h>

#include "bindings/tensor_view.h"

namespace collectives {

class Operand {
  public:
    enum class Use { read, write, read_write };

    Operand() = default;
    Operand(const Operand&) = delete;
    Operand& operator=(const Operand&) = delete;
    ~Operand() { Py_XDECREF(packed_); }

    /// Views `object`. A strided array is replaced by a contiguous copy when it is read, and by a contiguous copy that
    /// is copied back (`finish`) when it is written, unless `strided_output` is false: then that is refused. False with
    /// a Python error that names `argument`.
    bool take(PyObject* object, const char* argument, Use use, bool strided_output) {
        object_ = object;
        argument_ = argument;
        if (!view_array(object, argument, &view))
            return false;
        original_begin_ = view.extent_begin;
        original_end_ = view.extent_end;
        if (use != Use::read && !view.writable)
            return refuse_read_only();
        if (view.contiguous) [[likely]]
            return true;
        return pack(use, strided_output);
    }

    /// After the operation succeeded: copies a packed output back and tells autograd. False with a Python error.
    bool finish() {
        if (packed_ != nullptr)
            return unpack_into(object_, packed_);
        mark_written(object_, view);
        return true;
    }

    bool given() const { return object_ != nullptr; }
    PyObject* object() const { return object_; }                               // borrowed
    PyObject* owner() const { return packed_ != nullptr ? packed_ : object_; } // borrowed: what `view.data` lies in
    bool packed() const { return packed_ != nullptr; }

    /// False with a Python error when this output and `input` share memory and at least one of them was packed. (The
    /// core checks the rest: exactly equal blocks are in place, any other overlap is refused.)
    bool check_apart(const Operand& input) const;

    ArrayView view; // of the packed copy, where there is one

  private:
    bool refuse_read_only() const;
    bool pack(Use use, bool strided_output);

    PyObject* object_ = nullptr;
    PyObject* packed_ = nullptr;
    const char* argument_ = "";
    int64_t original_begin_ = 0;
    int64_t original_end_ = 0;
};

} // namespace collectives
