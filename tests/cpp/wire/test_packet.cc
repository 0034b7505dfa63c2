// The packet's layout against its one table, p4/shared/packet.json, and encoding.
#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>

#include <doctest/doctest.h>

#include "wire/packet.h"

using namespace collectives;

namespace {

std::string table() {
    const char* root = std::getenv("COLLECTIVES_SOURCE_DIR");
    REQUIRE_MESSAGE(root != nullptr, "set COLLECTIVES_SOURCE_DIR to the source tree, as ctest does");
    std::ifstream file(std::string(root) + "/p4/shared/packet.json");
    REQUIRE(file.good());
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

/// Every `"name": number` of the JSON text that `pattern` finds: the file is ours, and as flat as this.
std::map<std::string, long> numbers_in(const std::string& text, const std::string& object) {
    std::smatch found;
    REQUIRE(std::regex_search(text, found, std::regex("\"" + object + "\": \\{([^}]*)\\}")));
    const std::string body = found[1];
    std::map<std::string, long> numbers;
    const std::regex pair("\"(\\w+)\": (\\d+)");
    for (std::sregex_iterator it(body.begin(), body.end(), pair), end; it != end; ++it)
        numbers[(*it)[1]] = std::stol((*it)[2]);
    return numbers;
}

long number(const std::string& text, const std::string& name) {
    std::smatch found;
    REQUIRE(std::regex_search(text, found, std::regex("\"" + name + "\": (\\d+)")));
    return std::stol(found[1]);
}

} // namespace

TEST_CASE("packet: the fields are those of the table, in its order") {
    const std::string text = table();
    const std::regex row(R"re(\{"name": "(\w+)", "offset": (\d+), "bits": (\d+), "signed": (true|false)\})re");
    size_t i = 0;
    for (std::sregex_iterator it(text.begin(), text.end(), row), end; it != end; ++it, ++i) {
        REQUIRE(i < std::size(wire::kPacketFields));
        const wire::PacketField& field = wire::kPacketFields[i];
        CHECK(std::string(field.name) == (*it)[1].str());
        CHECK(long(field.offset) == std::stol((*it)[2]));
        CHECK(long(field.bits) == std::stol((*it)[3]));
        CHECK(field.is_signed == ((*it)[4] == "true"));
    }
    CHECK(i == std::size(wire::kPacketFields));
    CHECK(number(text, "header_bytes") == long(wire::kPacketHeaderBytes));
    CHECK(number(text, "port") == wire::kPacketPort);
    CHECK(number(text, "magic") == wire::kPacketMagic);
    CHECK(number(text, "version") == wire::kPacketVersion);
    CHECK(number(text, "most_lanes") == wire::kMostLanes);
    CHECK(number(text, "most_workers") == wire::kMostWorkers);
}

TEST_CASE("packet: kinds and flags are those of the table") {
    const std::string text = table();
    using K = wire::PacketKind;
    const std::map<std::string, long> kinds{{"update", long(K::update)},
                                            {"result", long(K::result)},
                                            {"mismatch", long(K::mismatch)},
                                            {"probe", long(K::probe)},
                                            {"probed", long(K::probed)}};
    CHECK(numbers_in(text, "kinds") == kinds);
    const std::map<std::string, long> flags{
        {"retransmission", wire::kFlagRetransmission}, {"overflow", wire::kFlagOverflow},
        {"not_a_number", wire::kFlagNotANumber},       {"plus_infinity", wire::kFlagPlusInfinity},
        {"minus_infinity", wire::kFlagMinusInfinity},  {"congestion", wire::kFlagCongestion}};
    CHECK(numbers_in(text, "flags") == flags);
}

TEST_CASE("packet: what is encoded is decoded, in network byte order") {
    wire::PacketHeader header;
    header.magic = wire::kPacketMagic;
    header.chunk_id = 0x0102030405060708;
    header.exponent = -2;
    header.lanes = 32;
    header.auth = ~uint64_t(0);
    uint8_t bytes[wire::kPacketHeaderBytes];
    wire::encode_packet(header, bytes);
    CHECK(wire::decode_packet(bytes) == header);
    CHECK(bytes[0] == 0xC0);
    CHECK(bytes[1] == 0xCA);
    for (int i = 0; i < 8; ++i) CHECK(bytes[24 + i] == i + 1);
    CHECK(bytes[40] == 0xFF);
    CHECK(bytes[41] == 0xFE);
}

TEST_CASE("packet: one that is not whole, or not of this version, is told apart") {
    wire::PacketHeader header;
    header.magic = wire::kPacketMagic;
    header.version = wire::kPacketVersion;
    header.lanes = 3;
    header.lane_bits = 16;
    CHECK(wire::check_packet(header, 62) == nullptr);
    CHECK(wire::check_packet(header, 61) != nullptr);
    CHECK(wire::check_packet(header, 63) != nullptr);
    auto wrong = [&](auto change) {
        wire::PacketHeader other = header;
        change(other);
        return wire::check_packet(other, wire::kPacketHeaderBytes + other.payload_bytes()) != nullptr;
    };
    CHECK(wrong([](auto& h) { h.magic = 1; }));
    CHECK(wrong([](auto& h) { h.version = 2; }));
    CHECK(wrong([](auto& h) { h.lanes = 0; }));
    CHECK(wrong([](auto& h) { h.lanes = 2049; }));
    CHECK(wrong([](auto& h) { h.lane_bits = 12; }));
}
