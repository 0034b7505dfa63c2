// COLLECTIVES_CHECK: an invariant of ours that must hold; breaking it is a bug, so it ends the process with the place.
// Not for bad input: that is a Status. May be included by everything.
#pragma once

#include <cstdio>
#include <cstdlib>

#define COLLECTIVES_CHECK(condition)                                                                                   \
    do {                                                                                                               \
        if (__builtin_expect(!(condition), 0)) {                                                                       \
            std::fprintf(stderr, "collectives: broken invariant at %s:%d: %s\n", __FILE__, __LINE__, #condition);      \
            std::abort();                                                                                              \
        }                                                                                                              \
    } while (0)
