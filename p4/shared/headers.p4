// The headers of a packet. aggregation_t is held to p4/shared/packet.json by tests/p4/test_packet_layout.py.

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> ether_type;
}

// Without options: a header with some is taken for none of ours.
header ipv4_t {
    bit<4>  version;
    bit<4>  header_words;
    bit<8>  services;         // DSCP and ECN
    bit<16> total_bytes;
    bit<16> identification;
    bit<3>  fragment_flags;
    bit<13> fragment_offset;
    bit<8>  time_to_live;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> source;
    bit<32> destination;
}

header udp_t {
    bit<16> source_port;
    bit<16> destination_port;
    bit<16> total_bytes;
    bit<16> checksum;
}

// The numbers that are signed in the protocol, exponent and next_exponent, are bit<16> here: they are compared once, and
// comparing them with the sign bit turned over is right on every target, whether or not it has signed arithmetic.
header aggregation_t {
    bit<16> magic;
    bit<8>  version;
    bit<8>  kind;
    bit<16> flags;
    bit<16> lanes;
    bit<32> job;
    bit<32> incarnation;
    bit<32> slot;
    bit<32> epoch;
    bit<64> chunk_id;
    bit<64> mask;
    bit<16> exponent;
    bit<16> next_exponent;
    bit<8>  worker;
    bit<8>  lane_bits;
    bit<16> count;
    bit<64> auth;
}

// One field a lane, not a stack: a stack's elements can be reached by constant numbers only, and cost a header each.
#define LANE_FIELD(i) bit<LANE_BITS> lane_##i;
header lanes_t {
    FOR_EACH_LANE(LANE_FIELD)
}

struct headers_t {
    ethernet_t    ethernet;
    ipv4_t        ipv4;
    udp_t         udp;
    aggregation_t aggregation;
    lanes_t       lanes;
}
