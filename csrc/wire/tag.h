// Tag: the short keyed tag of a packet, its field `auth`. Hash, then a pseudo-random function: the lanes are digested with two
// NH passes (128 bits), and SipHash-2-4 of header and digest is the tag.
//
// NH is the universal hash of UMAC (Black, Halevi, Krawczyk, Krovetz, Rogaway, CRYPTO '99; RFC 4418): the sum, modulo 2^64,
// of (m[2i] + k[2i]) (m[2i+1] + k[2i+1]) over 32-bit words m of the message and k of the key. With the key moved on by one
// pair for the second pass (their "Toeplitz" variant) two unlike messages of one length have the same digest with a
// probability of at most 2^-64 over the keys. It takes one multiplication for 8 bytes and vectorises, where SipHash
// (Aumasson, Bernstein, INDOCRYPT 2012) alone would cost as much as everything else that a packet costs. The length is
// in the header, which SipHash covers.
//
// Covered: the whole header with auth 0 and the flag `retransmission` 0, and the lanes. That flag is left out so that a
// worker's repeated packet keeps its tag; it changes no sum.
// May be included by innetwork and switch; includes wire only.
#pragma once

#include <array>
#include <cstdint>

#include "wire/packet.h"

namespace collectives::wire {

constexpr size_t kTagKeyBytes = 32;
using TagKey = std::array<uint8_t, kTagKeyBytes>;

/// SipHash-2-4 with a key of 16 bytes.
uint64_t siphash(const uint8_t* key, const uint8_t* data, size_t bytes);

/// A job's key, made ready: 8 KiB, to be kept. The first half of the key is SipHash's, the second one is expanded with
/// SipHash in counter mode to NH's. All functions may be called by several threads.
class Tagger {
  public:
    struct Digest {
        uint64_t first = 0, second = 0;
        bool operator==(const Digest&) const = default;
    };

    explicit Tagger(const TagKey& key);

    /// Of up to kMostLanes 32-bit lanes, as they lie in the packet.
    Digest digest(const uint8_t* lanes, size_t bytes) const;
    /// Of a header as it lies in the packet, whatever auth it has, and the digest of its lanes.
    uint64_t tag(const uint8_t* header, const Digest& lanes) const;
    /// Of a whole packet: kPacketHeaderBytes to kMostPacketBytes.
    uint64_t tag(const uint8_t* packet, size_t bytes) const {
        return tag(packet, digest(packet + kPacketHeaderBytes, bytes - kPacketHeaderBytes));
    }

    /// Writes auth.
    void sign(uint8_t* packet, size_t bytes) const { packet_detail::store(packet + kAuthOffset, tag(packet, bytes)); }
    /// Whether auth is right; takes as long where it is not.
    bool verify(const uint8_t* packet, size_t bytes) const {
        return (packet_detail::load<uint64_t>(packet + kAuthOffset) ^ tag(packet, bytes)) == 0;
    }

  private:
    static constexpr size_t kAuthOffset = 48, kFlagsOffset = 4;
    static constexpr size_t kPairs = kMostLanes / 2 + 1; // of 32-bit words; one more for the second pass

    std::array<uint8_t, 16> key_;
    alignas(64) std::array<uint64_t, kPairs> words_; // a pair each, the first in the lower half
};

namespace tag_detail {
// The digest by instruction set, for tests: all give the same. Which are there is told by supported().
using DigestFn = Tagger::Digest (*)(const uint64_t* key, const uint8_t* data, size_t pairs);
struct Target {
    const char* name;
    DigestFn digest;
};
/// The fastest first; the last one runs everywhere.
const Target* supported();
int supported_count();
} // namespace tag_detail

} // namespace collectives::wire
