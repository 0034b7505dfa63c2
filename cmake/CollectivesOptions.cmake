# Compiler settings that every target shares, and the two outside libraries the core needs. Included once, first.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")

# No fused multiply-add: every SIMD target and the GPU must give the same bits.
add_compile_options(-ffp-contract=off -Wall -Wextra)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # False alarms of gcc 12 inside its own headers: std::string's operator+, and the AVX-512 intrinsics.
    add_compile_options(-Wno-restrict -Wno-maybe-uninitialized -Wno-stringop-overflow)
endif()
if(COLLECTIVES_WERROR)
    add_compile_options(-Werror)
endif()

if(COLLECTIVES_SANITIZE)
    list(JOIN COLLECTIVES_SANITIZE "," sanitizers)
    add_compile_options(-fsanitize=${sanitizers} -fno-sanitize-recover=all -fno-omit-frame-pointer -g)
    add_link_options(-fsanitize=${sanitizers})
    # -O3 hides what the sanitizers look for and makes their builds slow.
    set(CMAKE_CXX_FLAGS_RELEASE "-O1")
endif()

find_program(COLLECTIVES_CCACHE ccache)
if(COLLECTIVES_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${COLLECTIVES_CCACHE}")
endif()

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)

add_compile_definitions(COLLECTIVES_VERSION="${PROJECT_VERSION}")
