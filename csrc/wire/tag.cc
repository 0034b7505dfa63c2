// SipHash-2-4, NH for each instruction set, and the tag of a packet. See tag.h.
#include "wire/tag.h"

#include <bit>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/check.h"

namespace collectives::wire {
namespace {

uint64_t little(const uint8_t* from) {
    uint64_t word;
    std::memcpy(&word, from, sizeof word);
    return std::endian::native == std::endian::little ? word : __builtin_bswap64(word);
}

struct Sip {
    uint64_t a, b, c, d;

    explicit Sip(const uint8_t* key)
        : a(little(key) ^ 0x736f6d6570736575), b(little(key + 8) ^ 0x646f72616e646f6d),
          c(little(key) ^ 0x6c7967656e657261), d(little(key + 8) ^ 0x7465646279746573) {}

    void round() {
        a += b, c += d;
        b = std::rotl(b, 13) ^ a, d = std::rotl(d, 16) ^ c;
        a = std::rotl(a, 32);
        c += b, a += d;
        b = std::rotl(b, 17) ^ c, d = std::rotl(d, 21) ^ a;
        c = std::rotl(c, 32);
    }
    void take(uint64_t word) {
        d ^= word;
        round();
        round();
        a ^= word;
    }
    uint64_t finish() {
        c ^= 0xff;
        for (int i = 0; i < 4; ++i) round();
        return a ^ b ^ c ^ d;
    }
};

using Digest = Tagger::Digest;

/// (low half of m + low half of k) (high half of m + high half of k)
uint64_t product(uint64_t m, uint64_t k) {
    return uint64_t(uint32_t(m) + uint32_t(k)) * uint64_t(uint32_t(m >> 32) + uint32_t(k >> 32));
}

Digest digest_generic(const uint64_t* key, const uint8_t* data, size_t pairs) {
    Digest sums;
    for (size_t i = 0; i < pairs; ++i) {
        const uint64_t m = little(data + 8 * i);
        sums.first += product(m, key[i]);
        sums.second += product(m, key[i + 1]);
    }
    return sums;
}

#if defined(__x86_64__)
// Sums are taken modulo 2^64, so their order does not matter: lanes of a vector are added up at the end.
__attribute__((target("avx2"))) Digest digest_avx2(const uint64_t* key, const uint8_t* data, size_t pairs) {
    __m256i first[2] = {}, second[2] = {};
    size_t i = 0;
    for (; i + 8 <= pairs; i += 8)
        for (size_t j = 0; j < 2; ++j) {
            const __m256i m = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data + 8 * (i + 4 * j)));
            const __m256i k = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(key + i + 4 * j));
            const __m256i l = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(key + i + 4 * j + 1));
            const __m256i x = _mm256_add_epi32(m, k), y = _mm256_add_epi32(m, l);
            first[j] = _mm256_add_epi64(first[j], _mm256_mul_epu32(x, _mm256_srli_epi64(x, 32)));
            second[j] = _mm256_add_epi64(second[j], _mm256_mul_epu32(y, _mm256_srli_epi64(y, 32)));
        }
    alignas(32) uint64_t sums[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(sums), _mm256_add_epi64(first[0], first[1]));
    _mm256_store_si256(reinterpret_cast<__m256i*>(sums + 4), _mm256_add_epi64(second[0], second[1]));
    const Digest rest = digest_generic(key + i, data + 8 * i, pairs - i);
    return {rest.first + sums[0] + sums[1] + sums[2] + sums[3], rest.second + sums[4] + sums[5] + sums[6] + sums[7]};
}

__attribute__((target("avx512f"))) Digest digest_avx512(const uint64_t* key, const uint8_t* data, size_t pairs) {
    __m512i first[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()}, second[2] = {first[0], first[0]};
    size_t i = 0;
    for (; i + 16 <= pairs; i += 16)
        for (size_t j = 0; j < 2; ++j) {
            const __m512i m = _mm512_loadu_si512(data + 8 * (i + 8 * j));
            const __m512i x = _mm512_add_epi32(m, _mm512_loadu_si512(key + i + 8 * j));
            const __m512i y = _mm512_add_epi32(m, _mm512_loadu_si512(key + i + 8 * j + 1));
            first[j] = _mm512_add_epi64(first[j], _mm512_mul_epu32(x, _mm512_srli_epi64(x, 32)));
            second[j] = _mm512_add_epi64(second[j], _mm512_mul_epu32(y, _mm512_srli_epi64(y, 32)));
        }
    const Digest rest = digest_generic(key + i, data + 8 * i, pairs - i);
    return {rest.first + uint64_t(_mm512_reduce_add_epi64(_mm512_add_epi64(first[0], first[1]))),
            rest.second + uint64_t(_mm512_reduce_add_epi64(_mm512_add_epi64(second[0], second[1])))};
}
#endif

struct Targets {
    tag_detail::Target rows[3];
    int count = 0;

    Targets() {
#if defined(__x86_64__)
        if (__builtin_cpu_supports("avx512f"))
            rows[count++] = {"avx512", digest_avx512};
        if (__builtin_cpu_supports("avx2"))
            rows[count++] = {"avx2", digest_avx2};
#endif
        rows[count++] = {"generic", digest_generic};
    }
};

const Targets& targets() {
    static const Targets found;
    return found;
}

} // namespace

const tag_detail::Target* tag_detail::supported() { return targets().rows; }
int tag_detail::supported_count() { return targets().count; }

uint64_t siphash(const uint8_t* key, const uint8_t* data, size_t bytes) {
    Sip sip(key);
    size_t i = 0;
    for (; i + 8 <= bytes; i += 8) sip.take(little(data + i));
    uint64_t last = uint64_t(bytes) << 56;
    for (size_t j = i; j < bytes; ++j) last |= uint64_t(data[j]) << 8 * (j - i);
    sip.take(last);
    return sip.finish();
}

Tagger::Tagger(const TagKey& key) {
    std::memcpy(key_.data(), key.data(), key_.size());
    for (size_t i = 0; i < words_.size(); ++i) {
        uint8_t number[8];
        packet_detail::store(number, uint64_t(i));
        words_[i] = siphash(key.data() + 16, number, sizeof number);
    }
}

Tagger::Digest Tagger::digest(const uint8_t* lanes, size_t bytes) const {
    COLLECTIVES_CHECK(bytes <= size_t(kMostLanes) * 4);
    const size_t whole = bytes / 8;
    Digest sums = targets().rows[0].digest(words_.data(), lanes, whole);
    if (const size_t left = bytes % 8; left > 0) {
        uint8_t last[8] = {};
        std::memcpy(last, lanes + 8 * whole, left);
        sums.first += product(little(last), words_[whole]);
        sums.second += product(little(last), words_[whole + 1]);
    }
    return sums;
}

uint64_t Tagger::tag(const uint8_t* header, const Digest& lanes) const {
    static_assert(kAuthOffset + 8 == kPacketHeaderBytes, "what comes before auth is covered, in words of 8 bytes");
    Sip sip(key_.data());
    uint8_t start[8];
    std::memcpy(start, header, sizeof start);
    start[kFlagsOffset + 1] &= uint8_t(~kFlagRetransmission); // network byte order: the low byte is the second
    sip.take(little(start));
    for (size_t i = 8; i < kAuthOffset; i += 8) sip.take(little(header + i));
    sip.take(lanes.first);
    sip.take(lanes.second);
    sip.take(uint64_t(kAuthOffset + 16) << 56);
    return sip.finish();
}

} // namespace collectives::wire
