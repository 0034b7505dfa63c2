// Reading torch CPU tensors and NumPy arrays. See tensor_view.h.
//
// NumPy's array and descriptor structs are read through pybind11's declarations of them: the stable beginning of each
// has not changed since NumPy 1.0 and the library must not be built against one NumPy's headers.
#include "bindings/tensor_view.h"

#include <pybind11/numpy.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace py = pybind11;

namespace collectives {
namespace {

// ---- dtypes ---------------------------------------------------------------------------------------------------------

struct TorchRow {
    at::ScalarType type;
    DType dtype;
};

constexpr std::array<TorchRow, kDTypeCount> kTorchTypes = {{
    {at::kDouble, DType::f64},
    {at::kFloat, DType::f32},
    {at::kHalf, DType::f16},
    {at::kBFloat16, DType::bf16},
    {at::kFloat8_e4m3fn, DType::f8e4m3fn},
    {at::kFloat8_e5m2, DType::f8e5m2},
    {at::kChar, DType::i8},
    {at::kShort, DType::i16},
    {at::kInt, DType::i32},
    {at::kLong, DType::i64},
    {at::kByte, DType::u8},
    {at::kUInt16, DType::u16},
    {at::kUInt32, DType::u32},
    {at::kUInt64, DType::u64},
    {at::kBool, DType::boolean},
    {at::kComplexFloat, DType::c64},
    {at::kComplexDouble, DType::c128},
}};

constexpr bool torch_rows_in_dtype_order() {
    for (size_t i = 0; i < kTorchTypes.size(); ++i)
        if (static_cast<size_t>(kTorchTypes[i].dtype) != i)
            return false;
    return true;
}
static_assert(torch_rows_in_dtype_order(), "kTorchTypes must list the enumerators of DType in their order");

constexpr int8_t kNone = -1;

/// NumPy's type numbers 0..23 (NPY_BOOL, NPY_BYTE, ...) -> DType; kNone where the library has no such type.
constexpr int8_t row(DType dtype) { return static_cast<int8_t>(dtype); }
constexpr int8_t signed_of(size_t bytes) {
    return row(bytes == 8 ? DType::i64 : bytes == 4 ? DType::i32 : bytes == 2 ? DType::i16 : DType::i8);
}
constexpr int8_t unsigned_of(size_t bytes) {
    return row(bytes == 8 ? DType::u64 : bytes == 4 ? DType::u32 : bytes == 2 ? DType::u16 : DType::u8);
}
constexpr std::array<int8_t, 24> kNumpyTypes = {
    row(DType::boolean),
    signed_of(sizeof(signed char)),
    unsigned_of(sizeof(unsigned char)),
    signed_of(sizeof(short)),
    unsigned_of(sizeof(unsigned short)),
    signed_of(sizeof(int)),
    unsigned_of(sizeof(unsigned)),
    signed_of(sizeof(long)),
    unsigned_of(sizeof(unsigned long)),
    signed_of(sizeof(long long)),
    unsigned_of(sizeof(unsigned long long)),
    row(DType::f32),
    row(DType::f64),
    kNone, // float, double, long double
    row(DType::c64),
    row(DType::c128),
    kNone, // their complex forms
    kNone,
    kNone,
    kNone,
    kNone,
    kNone,
    kNone, // object, bytes, str, void, datetime64, timedelta64
    row(DType::f16),
};

/// Type numbers that ml_dtypes was given when it registered its types with NumPy, learnt on first sight. GIL-protected.
struct MlDType {
    const char* name;
    DType dtype;
    int type_num;
};
std::array<MlDType, 3> ml_dtypes = {{
    {"bfloat16", DType::bf16, -1},
    {"float8_e4m3fn", DType::f8e4m3fn, -1},
    {"float8_e5m2", DType::f8e5m2, -1},
}};

int8_t ml_dtype_of(const py::detail::PyArrayDescr_Proxy* descr) {
    for (const MlDType& known : ml_dtypes)
        if (known.type_num == descr->type_num)
            return row(known.dtype);
    const auto* type = reinterpret_cast<const PyTypeObject*>(descr->typeobj);
    const char* name = std::strrchr(type->tp_name, '.');
    name = name == nullptr ? type->tp_name : name + 1;
    const py::object module = py::reinterpret_borrow<py::object>(descr->typeobj).attr("__module__");
    if (!py::isinstance<py::str>(module) || module.cast<std::string>().rfind("ml_dtypes", 0) != 0)
        return kNone;
    for (MlDType& known : ml_dtypes) {
        if (std::strcmp(known.name, name) != 0)
            continue;
        known.type_num = descr->type_num;
        return row(known.dtype);
    }
    return kNone;
}

// ---- layouts --------------------------------------------------------------------------------------------------------

/// Strides in bytes whose elements cannot share an address: sorted by size, each steps over all that the smaller ones
/// span. Conservative: some exotic layouts without overlap are taken for overlapping.
bool strides_overlap(const int64_t* sizes, const int64_t* strides, int64_t dimensions, int64_t element_bytes) {
    std::vector<std::pair<int64_t, int64_t>> steps; // (|stride|, size)
    for (int64_t d = 0; d < dimensions; ++d) {
        if (sizes[d] == 0)
            return false;
        if (sizes[d] > 1)
            steps.emplace_back(std::abs(strides[d]), sizes[d]);
    }
    std::sort(steps.begin(), steps.end());
    int64_t span_bytes = element_bytes;
    for (const auto& [stride, size] : steps) {
        if (stride < span_bytes)
            return true;
        span_bytes += stride * (size - 1);
    }
    return false;
}

struct Layout {
    const int64_t* sizes;
    const int64_t* strides;
    int64_t dimensions;
    int64_t stride_bytes; // bytes of one unit of a stride: 1 for NumPy, the element size for torch
};

void fill_sizes(const Layout& layout, ArrayView* view) {
    view->rows = layout.dimensions > 0 ? layout.sizes[0] : 1;
    view->row_elements = 1;
    for (int64_t d = 1; d < layout.dimensions; ++d) view->row_elements *= layout.sizes[d];
    view->count = view->rows * view->row_elements;
}

void fill_extent(const Layout& layout, ArrayView* view) {
    const int64_t element_bytes = static_cast<int64_t>(size_of(view->dtype));
    view->extent_begin = reinterpret_cast<int64_t>(view->data);
    view->extent_end = view->extent_begin;
    if (view->count == 0)
        return;
    view->extent_end += view->contiguous ? view->count * element_bytes : element_bytes;
    if (view->contiguous)
        return;
    for (int64_t d = 0; d < layout.dimensions; ++d) {
        const int64_t reach = layout.strides[d] * layout.stride_bytes * (layout.sizes[d] - 1);
        (reach < 0 ? view->extent_begin : view->extent_end) += reach;
    }
}

// ---- torch ----------------------------------------------------------------------------------------------------------

/// Why a tensor cannot be used; null when it can. In words that follow "argument: ".
const char* refuse_tensor(const at::Tensor& tensor) {
    if (!tensor.defined())
        return "an undefined tensor";
    if (tensor.layout() != at::kStrided)
        return "a sparse tensor; pass its values and indices, or a dense tensor";
    if (!tensor.device().is_cpu())
        return "a tensor that is not on the CPU; other devices are not supported yet: copy it to the CPU first";
    if (tensor.key_set().has(c10::DispatchKey::Python))
        return "a tensor subclass without memory of its own (DTensor, FakeTensor, ...); pass its local tensor";
    if (tensor._is_zerotensor())
        return "a tensor without memory (a ZeroTensor)";
    if (!tensor.has_storage())
        return "a tensor without memory";
    return nullptr;
}

bool view_tensor(const at::Tensor& tensor, const char* argument, ArrayView* view) {
    if (const char* why = refuse_tensor(tensor)) {
        PyErr_Format(PyExc_ValueError, "%s: %s", argument, why);
        return false;
    }
    const std::optional<DType> dtype = dtype_of(tensor.scalar_type());
    if (!dtype) {
        PyErr_Format(PyExc_ValueError, "%s: dtype torch.%s is not supported (`collectives info` lists those that are)",
                     argument, c10::toString(tensor.scalar_type()));
        return false;
    }
    view->is_torch = true;
    view->dtype = *dtype;
    view->data = const_cast<void*>(tensor.const_data_ptr());
    view->writable = true;
    view->contiguous = tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
    const Layout layout{tensor.sizes().data(), tensor.strides().data(), tensor.dim(),
                        static_cast<int64_t>(size_of(*dtype))};
    fill_sizes(layout, view);
    fill_extent(layout, view);
    return true;
}

// ---- NumPy ----------------------------------------------------------------------------------------------------------

// Not a static within a function: finding it releases the GIL, while the static's guard would keep other threads waiting,
// one of which may hold the GIL then.
PyTypeObject* numpy_array_type = nullptr;

bool is_masked_array(PyObject* object) { return PyObject_HasAttrString(object, "_mask") != 0; }

void refuse_numpy_dtype(const char* argument, PyObject* descr) {
    PyErr_Format(PyExc_ValueError, "%s: NumPy dtype %S is not supported (`collectives info` lists those that are)",
                 argument, descr);
}

bool view_numpy(PyObject* object, const char* argument, ArrayView* view) {
    using Api = py::detail::npy_api;
    const auto* array = py::detail::array_proxy(object);
    const auto* descr = py::detail::array_descriptor_proxy(array->descr);
    const int type_num = descr->type_num;
    const int8_t dtype = type_num >= 0 && type_num < static_cast<int>(kNumpyTypes.size())
                             ? kNumpyTypes[static_cast<size_t>(type_num)]
                             : ml_dtype_of(descr);
    if (dtype == kNone) {
        refuse_numpy_dtype(argument, array->descr);
        return false;
    }
    if (descr->byteorder == '>') {
        PyErr_Format(PyExc_ValueError,
                     "%s: the byte order of dtype %S is not this machine's; convert it with "
                     "array.astype(array.dtype.newbyteorder('='))",
                     argument, array->descr);
        return false;
    }
    if (Py_TYPE(object) != numpy_array_type && is_masked_array(object)) {
        PyErr_Format(PyExc_ValueError, "%s: a masked array, whose mask would be ignored; pass array.filled(value)",
                     argument);
        return false;
    }
    view->is_torch = false;
    view->dtype = static_cast<DType>(dtype);
    view->data = array->data;
    view->writable = (array->flags & Api::NPY_ARRAY_WRITEABLE_) != 0;
    view->contiguous = (array->flags & (Api::NPY_ARRAY_C_CONTIGUOUS_ | Api::NPY_ARRAY_ALIGNED_)) ==
                       (Api::NPY_ARRAY_C_CONTIGUOUS_ | Api::NPY_ARRAY_ALIGNED_);
    static_assert(sizeof(ssize_t) == sizeof(int64_t));
    const Layout layout{reinterpret_cast<const int64_t*>(array->dimensions),
                        reinterpret_cast<const int64_t*>(array->strides), array->nd, 1};
    fill_sizes(layout, view);
    fill_extent(layout, view);
    return true;
}

bool refuse_object(PyObject* object, const char* argument) {
    const char* hint = PyObject_HasAttrString(object, "__dlpack__") != 0
                           ? "; arrays that are known by DLPack alone (CuPy, JAX, ...) are not supported yet: convert "
                             "it to NumPy or torch"
                           : "; convert it with numpy.asarray";
    PyErr_Format(PyExc_TypeError, "%s: expected a NumPy array or a torch CPU tensor, got %s%s", argument,
                 Py_TYPE(object)->tp_name, hint);
    return false;
}

const at::Tensor& unpack(PyObject* object) { return THPVariable_Unpack(object); }

} // namespace

std::optional<DType> dtype_of(at::ScalarType type) {
    // Indexed by torch's number: this runs in every call.
    static const auto table = [] {
        std::array<int8_t, static_cast<size_t>(at::ScalarType::NumOptions)> rows;
        rows.fill(kNone);
        for (const TorchRow& known : kTorchTypes) rows[static_cast<size_t>(known.type)] = row(known.dtype);
        return rows;
    }();
    const auto index = static_cast<size_t>(type);
    if (index >= table.size() || table[index] == kNone)
        return std::nullopt;
    return static_cast<DType>(table[index]);
}

at::ScalarType scalar_type_of(DType dtype) { return kTorchTypes[static_cast<size_t>(dtype)].type; }

void load_numpy() { numpy_array_type = py::detail::npy_api::get().PyArray_Type_; }

bool view_array(PyObject* object, const char* argument, ArrayView* view) {
    if (Py_TYPE(object) == numpy_array_type)
        return view_numpy(object, argument, view);
    if (THPVariable_Check(object))
        return view_tensor(unpack(object), argument, view);
    if (PyObject_TypeCheck(object, numpy_array_type))
        return view_numpy(object, argument, view);
    return refuse_object(object, argument);
}

bool has_internal_overlap(PyObject* object) {
    if (THPVariable_Check(object)) {
        const at::Tensor& tensor = unpack(object);
        return strides_overlap(tensor.sizes().data(), tensor.strides().data(), tensor.dim(), 1);
    }
    const auto* array = py::detail::array_proxy(object);
    const int64_t element_bytes = py::reinterpret_borrow<py::object>(array->descr).attr("itemsize").cast<int64_t>();
    return strides_overlap(reinterpret_cast<const int64_t*>(array->dimensions),
                           reinterpret_cast<const int64_t*>(array->strides), array->nd, element_bytes);
}

PyObject* packed_copy(PyObject* object) {
    if (THPVariable_Check(object)) {
        const at::Tensor packed = unpack(object).detach().clone(at::MemoryFormat::Contiguous);
        return THPVariable_Wrap(packed.resolve_conj().resolve_neg().contiguous());
    }
    const py::module_ numpy = py::module_::import("numpy");
    return numpy.attr("array")(py::handle(object), py::arg("copy") = true, py::arg("order") = "C").release().ptr();
}

bool unpack_into(PyObject* strided, PyObject* packed) {
    if (THPVariable_Check(strided)) {
        unpack(strided).detach().copy_(unpack(packed));
        return true;
    }
    py::module_::import("numpy").attr("copyto")(py::handle(strided), py::handle(packed));
    return true;
}

void mark_written(PyObject* object, const ArrayView& view) {
    if (!view.is_torch)
        return;
    const at::Tensor& tensor = unpack(object);
    if (!tensor.is_inference())
        tensor.unsafeGetTensorImpl()->bump_version();
}

} // namespace collectives
