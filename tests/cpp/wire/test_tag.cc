// The packet's tag: SipHash's own test vectors, the digest by its definition and on all instruction sets, and what a tag covers.
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include <doctest/doctest.h>

#include "wire/tag.h"

using namespace collectives::wire;

namespace {

TagKey key_of(uint8_t first) {
    TagKey key;
    std::iota(key.begin(), key.end(), first);
    return key;
}

std::vector<uint8_t> packet(int lanes, int lane_bits = 32) {
    PacketHeader h;
    h.magic = kPacketMagic;
    h.version = kPacketVersion;
    h.lanes = uint16_t(lanes);
    h.lane_bits = uint8_t(lane_bits);
    h.chunk_id = 0x0102030405060708;
    std::vector<uint8_t> bytes(kPacketHeaderBytes + h.payload_bytes());
    std::iota(bytes.begin(), bytes.end(), uint8_t(7));
    encode_packet(h, bytes.data());
    return bytes;
}

} // namespace

TEST_CASE("tag: SipHash-2-4 as in the vectors of its authors") { // key 00 01 .. 0f, data 00 01 .., by length
    uint8_t data[16];
    std::iota(data, data + 16, uint8_t(0));
    const TagKey key = key_of(0);
    CHECK(siphash(key.data(), data, 0) == 0x726fdb47dd0e0e31);
    CHECK(siphash(key.data(), data, 1) == 0x74f839c593dc67fd);
    CHECK(siphash(key.data(), data, 8) == 0x93f5f5799a932462);
    CHECK(siphash(key.data(), data, 15) == 0xa129ca6149be45e5);
}

TEST_CASE("tag: of a packet, by the definition, from SipHash alone") {
    const TagKey key = key_of(0x20);
    for (int lanes : {1, 2, 3, 7, 64, 2048})
        for (int bits : {8, 16, 32}) {
            const std::vector<uint8_t> bytes = packet(lanes, bits);
            std::vector<uint8_t> padded(bytes.begin() + long(kPacketHeaderBytes), bytes.end());
            padded.resize((padded.size() + 7) / 8 * 8);
            uint64_t sums[2] = {0, 0};
            for (size_t i = 0; i < padded.size() / 8; ++i)
                for (size_t pass = 0; pass < 2; ++pass) {
                    const uint8_t number[8] = {0, 0, 0, 0, 0, 0, uint8_t((i + pass) >> 8), uint8_t(i + pass)};
                    const uint64_t k = siphash(key.data() + 16, number, 8);
                    uint32_t m[2];
                    std::memcpy(m, &padded[8 * i], 8); // little-endian
                    sums[pass] += uint64_t(uint32_t(m[0] + uint32_t(k))) * uint32_t(m[1] + uint32_t(k >> 32));
                }
            std::vector<uint8_t> covered(bytes.begin(), bytes.begin() + 48);
            for (uint64_t sum : sums)
                for (int i = 0; i < 8; ++i) covered.push_back(uint8_t(sum >> 8 * i));
            CHECK(Tagger(key).tag(bytes.data(), bytes.size()) == siphash(key.data(), covered.data(), covered.size()));
        }
}

TEST_CASE("tag: numbers that must never change, for both ends have them") {
    const std::vector<uint8_t> small = packet(3, 8), large = packet(2048);
    CHECK(Tagger(key_of(1)).tag(small.data(), small.size()) == 0x6ce31dd63f06e24d);
    CHECK(Tagger(key_of(1)).tag(large.data(), large.size()) == 0x53f44e44a22a3e1a);
}

TEST_CASE("tag: all instruction sets digest alike, whatever the length and the address") {
    std::mt19937_64 random(1);
    std::vector<uint64_t> key(1025);
    for (uint64_t& each : key) each = random();
    std::vector<uint8_t> data(8 * 1024 + 8);
    for (uint8_t& each : data) each = uint8_t(random());
    const tag_detail::Target* rows = tag_detail::supported();
    const int n = tag_detail::supported_count();
    for (size_t pairs : {0, 1, 7, 8, 9, 15, 16, 17, 31, 33, 1000, 1023, 1024})
        for (size_t shift : {0, 1, 4}) {
            const Tagger::Digest wanted = rows[n - 1].digest(key.data(), data.data() + shift, pairs);
            for (int i = 0; i < n - 1; ++i) {
                CAPTURE(rows[i].name);
                CHECK(rows[i].digest(key.data(), data.data() + shift, pairs) == wanted);
            }
        }
}

TEST_CASE("tag: any bit but those of auth and the retransmission flag is covered") {
    const Tagger tagger(key_of(9));
    std::vector<uint8_t> bytes = packet(5, 16);
    tagger.sign(bytes.data(), bytes.size());
    CHECK(tagger.verify(bytes.data(), bytes.size()));
    CHECK_FALSE(Tagger(key_of(8)).verify(bytes.data(), bytes.size()));
    for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
        std::vector<uint8_t> other = bytes;
        other[bit / 8] ^= uint8_t(1 << bit % 8);
        CAPTURE(bit);
        CHECK(tagger.verify(other.data(), other.size()) == (bit == 8 * 5)); // flag 1 is the lowest bit of byte 5
    }
    bytes[5] |= kFlagRetransmission;
    CHECK(tagger.verify(bytes.data(), bytes.size()));
}

TEST_CASE("tag: of thousands of packets and of both halves of the key no two are alike") {
    std::set<uint64_t> seen;
    std::vector<uint8_t> bytes = packet(4);
    size_t tried = 0;
    for (uint32_t i = 0; i < 4000; ++i, ++tried) {
        packet_detail::store(&bytes[kPacketHeaderBytes + 4 * (i % 4)], i);
        seen.insert(Tagger(key_of(3)).tag(bytes.data(), bytes.size()));
        if (i == 40)
            for (size_t half : {0, 16}) {
                TagKey key = key_of(3);
                key[half] ^= 1;
                seen.insert(Tagger(key).tag(bytes.data(), bytes.size()));
                ++tried;
            }
    }
    CHECK(seen.size() == tried);
}
