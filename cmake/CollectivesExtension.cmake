# The extension module collectives._core: bindings/*.cc over the core. The only target that sees torch or Python.
file(GLOB binding_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/bindings/*.cc)
if(NOT binding_sources)
    message(FATAL_ERROR "bindings/ holds no source file: this checkout is incomplete "
        "(-DCOLLECTIVES_PYTHON=OFF builds the core alone)")
endif()

Python_add_library(_core MODULE WITH_SOABI ${binding_sources})
target_include_directories(_core PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(_core PRIVATE collectives_core collectives_switch collectives_torch)
# `import torch` comes before `import collectives._core`, so that libtorch is loaded already; the run path only serves
# tools that open the module by itself.
set_target_properties(_core PROPERTIES INSTALL_RPATH "$ORIGIN/../torch/lib")

configure_file(${PROJECT_SOURCE_DIR}/cmake/_build_info.py.in ${PROJECT_BINARY_DIR}/_build_info.py @ONLY)
install(TARGETS _core LIBRARY DESTINATION collectives COMPONENT python)
install(FILES ${PROJECT_BINARY_DIR}/_build_info.py DESTINATION collectives COMPONENT python)
