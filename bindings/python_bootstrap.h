// PythonBootstrap: ranks that find each other through Python code, such as an mpi4py communicator.
// Included by communicator.cc only.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "transport/bootstrap.h"

namespace collectives {

/// Calls a Python object with two methods: `all_gather(mine: bytes, timeout: float) -> list[bytes]`, which raises
/// TimeoutError, and `sub(name: str, ranks: list[int])`, which gives such an object for some of the ranks. Takes the GIL
/// for its calls: must be called without it, since Python code of other threads may have to run meanwhile.
class PythonBootstrap final : public Bootstrap {
  public:
    explicit PythonBootstrap(pybind11::object object) : object_(std::move(object)) {}
    ~PythonBootstrap() override;

    Status all_gather(std::string_view mine, std::vector<std::string>* all, int64_t deadline_ns) override;
    std::unique_ptr<Bootstrap> sub(const std::string& name, const std::vector<int>& ranks) override;

  private:
    pybind11::object object_;
};

} // namespace collectives
