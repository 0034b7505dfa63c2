// What a build is made for, the numbers of the protocol (p4/shared/packet.json, docs/protocol.md), and the verdicts.

// ---- The build. A switch's parser and registers have fixed sizes, so one program serves one size of packet; several
// sizes are several builds of the same source.

#ifndef LANES
#define LANES 32
#endif

#ifndef LANE_BITS
#define LANE_BITS 32
#endif

// Slots of all jobs together. Each has two cells; each cell has a place in every register of shared/slot and aggregate.
#ifndef MAX_SLOTS
#define MAX_SLOTS 256
#endif

// ---- Packets.

const bit<16> UDP_PORT = 5190;
const bit<16> MAGIC = 0xC0CA;
const bit<8> VERSION = 1;

const bit<8> KIND_UPDATE = 1;
const bit<8> KIND_RESULT = 2;
const bit<8> KIND_MISMATCH = 3;

const bit<16> FLAG_RETRANSMISSION = 1;
const bit<16> FLAG_OVERFLOW = 2;

const bit<8> FROM_SWITCH = 255;         // the field worker of a reply
const bit<16> LOWEST_EXPONENT = 0x8000; // -32768: a chunk of zeros, or of integers
const bit<16> SIGN_16 = 0x8000;

const bit<16> TYPE_IPV4 = 0x0800;
const bit<8> PROTOCOL_UDP = 17;
const bit<8> TIME_TO_LIVE = 64;
const bit<3> DO_NOT_FRAGMENT = 2;

const bit<16> IPV4_BYTES = 20;
const bit<16> UDP_BYTES = 8 + 56 + LANES * LANE_BITS / 8;     // what the UDP header must say: itself, ours, the lanes
const bit<32> FRAME_BYTES = 14 + 20 + 8 + 56 + LANES * LANE_BITS / 8;

// ---- Verdicts: what became of a packet. Each packet that comes in has exactly one, and each has a counter at its number
// (AggregationIngress.verdicts), so that the sum of the counters is the number of packets.

const bit<8> GOES_ON = 0;           // not yet known
const bit<8> MALFORMED = 1;
const bit<8> STRANGER = 2;
const bit<8> BAD_TAG = 3;           // never here: P4 carries auth unchecked. Kept, so that numbers agree with the software switch
const bit<8> STALE_INCARNATION = 4;
const bit<8> OUTSIDE = 5;
const bit<8> LATE = 6;
const bit<8> EARLY = 7;
const bit<8> DUPLICATE = 8;
const bit<8> MISMATCH = 9;          // replied to all
const bit<8> ADDED = 10;            // its work is done, and it was not the last
const bit<8> COMPLETED = 11;        // the last: the result to all
const bit<8> REPLAYED = 12;         // the result once more, to one
const bit<8> LOST = 13;             // by the drop simulator, on the way in
