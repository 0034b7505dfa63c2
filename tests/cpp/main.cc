// The main function of the C++ unit tests. Every other file here holds test cases only.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
