// Bootstrap over Python code. See python_bootstrap.h.
#include "bindings/python_bootstrap.h"

#include <pybind11/stl.h>

#include <algorithm>

#include "base/clock.h"

namespace py = pybind11;

namespace collectives {
namespace {

/// A Python error of a round as a Status. Ctrl-C stays set in the thread, where the caller finds it.
Status status_of(py::error_already_set& error) {
    if (error.matches(PyExc_TimeoutError))
        return {Code::timeout, error.what()};
    if (error.matches(PyExc_KeyboardInterrupt)) {
        error.restore();
        return {Code::interrupted, "interrupted while the ranks of a new group looked for each other"};
    }
    return {Code::internal, std::string("the ranks of a new group could not find each other: ") + error.what()};
}

/// A bootstrap that could not be made; every round repeats why.
class FailedBootstrap final : public Bootstrap {
  public:
    explicit FailedBootstrap(Status status) : status_(std::move(status)) {}
    Status all_gather(std::string_view, std::vector<std::string>*, int64_t) override { return status_; }
    std::unique_ptr<Bootstrap> sub(const std::string&, const std::vector<int>&) override {
        return std::make_unique<FailedBootstrap>(status_);
    }

  private:
    Status status_;
};

} // namespace

PythonBootstrap::~PythonBootstrap() {
    if (Py_IsInitialized()) {
        py::gil_scoped_acquire gil;
        object_ = py::object();
    } else {
        object_.release(); // the interpreter is gone, and its objects with it
    }
}

Status PythonBootstrap::all_gather(std::string_view mine, std::vector<std::string>* all, int64_t deadline_ns) {
    py::gil_scoped_acquire gil;
    try {
        const double seconds = deadline_ns == kForever ? 1e9 : static_cast<double>(deadline_ns - monotonic_ns()) * 1e-9;
        const py::object gathered =
            object_.attr("all_gather")(py::bytes(mine.data(), mine.size()), std::max(seconds, 0.0));
        all->clear();
        for (const py::handle entry : gathered) all->push_back(std::string(py::reinterpret_borrow<py::bytes>(entry)));
        return {};
    } catch (py::error_already_set& error) {
        return status_of(error);
    }
}

std::unique_ptr<Bootstrap> PythonBootstrap::sub(const std::string& name, const std::vector<int>& ranks) {
    py::gil_scoped_acquire gil;
    try {
        return std::make_unique<PythonBootstrap>(object_.attr("sub")(name, ranks));
    } catch (py::error_already_set& error) {
        return std::make_unique<FailedBootstrap>(status_of(error));
    }
}

} // namespace collectives
