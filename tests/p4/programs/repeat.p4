// Unrolls M(0) ... M(LANES - 1): a fragment, included by adder.p4.
#define REPEAT_4(M, n) M(n##0) M(n##1) M(n##2) M(n##3)
#define REPEAT_10(M, n) REPEAT_4(M, n) M(n##4) M(n##5) M(n##6) M(n##7) M(n##8) M(n##9)
#if LANES == 4
#define FOR_EACH_LANE(M) REPEAT_4(M, )
#elif LANES == 64
#define FOR_EACH_LANE(M) REPEAT_10(M, ) REPEAT_10(M, 1) REPEAT_10(M, 2) REPEAT_10(M, 3) REPEAT_10(M, 4) \
    REPEAT_10(M, 5) REPEAT_4(M, 6)
#else
#error LANES is 4 or 64
#endif
