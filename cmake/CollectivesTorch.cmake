# The installed torch as an imported target, collectives_torch. Found by asking the interpreter where the package lies
# (no `import torch`, no find_package(Torch): both are slow, and the latter drags in CUDA's toolkit for a CUDA build).
find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)

execute_process(
    COMMAND "${Python_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/find_torch.py"
    OUTPUT_VARIABLE torch_answer
    ERROR_VARIABLE torch_error
    RESULT_VARIABLE torch_result
    OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT torch_result EQUAL 0)
    message(FATAL_ERROR "No usable torch in ${Python_EXECUTABLE}.\n${torch_error}\n"
        "The extension is compiled against the torch that is installed: install torch first, then run\n"
        "    pip install --no-build-isolation .")
endif()
list(GET torch_answer 0 COLLECTIVES_TORCH_VERSION)
list(GET torch_answer 1 COLLECTIVES_TORCH_DIR)
message(STATUS "torch ${COLLECTIVES_TORCH_VERSION} in ${COLLECTIVES_TORCH_DIR}")

add_library(collectives_torch INTERFACE)
# torch's own copy of pybind11 comes first: types registered by torch (ProcessGroup, Backend, Work) can only be used
# from an extension whose pybind11 has the same internals.
target_include_directories(collectives_torch SYSTEM INTERFACE
    "${COLLECTIVES_TORCH_DIR}/include"
    "${COLLECTIVES_TORCH_DIR}/include/torch/csrc/api/include")
foreach(name IN ITEMS c10 torch_cpu torch torch_python)
    target_link_libraries(collectives_torch INTERFACE "${COLLECTIVES_TORCH_DIR}/lib/lib${name}.so")
endforeach()
# The version is part of every compile line, so that another torch rebuilds the bindings.
target_compile_definitions(collectives_torch INTERFACE
    COLLECTIVES_TORCH_VERSION="${COLLECTIVES_TORCH_VERSION}" TORCH_API_INCLUDE_EXTENSION_H)
