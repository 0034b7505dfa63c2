// What the core needs to know about an array: dtype, address, element count, layout. Reads torch CPU tensors and NumPy
// arrays without the buffer protocol, so that a small call from Python costs nanoseconds here.
// Included by the other bindings only. Everything here needs the GIL, except the two dtype functions.
#pragma once

#include <Python.h>

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>

#include "types/dtype.h"

namespace collectives {

/// The row of the dtype table for a torch dtype; nothing when the library has none (quantised types, float8 fnuz, ...).
std::optional<DType> dtype_of(at::ScalarType type);

/// The torch dtype of a row of the dtype table. Every row has one.
at::ScalarType scalar_type_of(DType dtype);

/// Finds NumPy; once, when the module is loaded. Throws the Python error when it cannot be imported.
void load_numpy();

/// An array as the core sees it. Borrows: the Python object must outlive it.
struct ArrayView {
    void* data = nullptr;
    int64_t count = 0;        // elements
    int64_t rows = 1;         // size of dimension 0 (1 for an array of no dimensions)
    int64_t row_elements = 1; // elements of one row: the product of the other dimensions
    int64_t extent_begin = 0; // addresses of the bytes that the elements lie in; with negative strides begin < data
    int64_t extent_end = 0;
    DType dtype = DType::u8;
    bool contiguous = true; // elements in C order without gaps, values stored as they are (no lazy conjugate)
    bool writable = true;
    bool is_torch = false;
};

/// Fills `view` from a torch tensor or NumPy array. False, with a Python error that names `argument`, when the object is
/// neither (TypeError) or is one that the library cannot handle (ValueError): wrong device, layout, dtype or byte order.
bool view_array(PyObject* object, const char* argument, ArrayView* view);

/// True when two elements of the array may share an address (expanded or overlapping strides), so that it cannot be
/// written to. Errors are not possible.
bool has_internal_overlap(PyObject* object);

/// A contiguous copy of an array, of its own kind. Null with a Python error.
PyObject* packed_copy(PyObject* object);

/// Copies the values of a packed array into a strided one of the same shape. False with a Python error.
bool unpack_into(PyObject* strided, PyObject* packed);

/// After the core wrote into an array: tells autograd that a torch tensor's values changed. Nothing for NumPy.
void mark_written(PyObject* object, const ArrayView& view);

} // namespace collectives
