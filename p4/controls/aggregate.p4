// The lanes: one register array a lane, 32 bits whatever the width in the packet, indexed by cell. (One wide register would
// need shifts of thousands of bits, and nobody could read it.)
//
// 32 bits wrap, as integers do everywhere; 64 workers of 16 bits need 22, so that narrow sums are exact until the reply,
// where a lane that does not fit is set to the nearest number that does, and says so. Limiting earlier would make the sum
// depend on the order of the packets.
//
// Signed numbers without signed types: turning over the sign bit and taking it away again widens two's complement, and
// adding it moves the range of the narrow type to 0 and up, where one comparison finds what is outside.

#define HALF (32w1 << (LANE_BITS - 1))
#define WHOLE (32w1 << LANE_BITS)

#if LANE_BITS == 32
#define WIDE(lane) lane
#define LANE_TO_PACKET(i) hdr.lanes.lane_##i = sum;
#else
#define WIDE(lane) (((bit<32>)lane ^ HALF) - HALF)
#define LANE_TO_PACKET(i) \
    meta.overflow = meta.overflow | (sum + HALF < WHOLE ? 16w0 : FLAG_OVERFLOW); \
    hdr.lanes.lane_##i = (bit<LANE_BITS>)(sum + HALF < WHOLE ? sum : (sum[31:31] == 1 ? HALF : HALF - 1));
#endif

#define LANE_REGISTER(i) register<bit<32>>(MAX_SLOTS * 2) lane_##i;

// The first packet of an epoch overwrites: there is no step in which a cell is cleared, and none that could be missed.
#define LANE_STORE(i) \
    lane_##i.write(meta.cell_index, WIDE(hdr.lanes.lane_##i));

#define LANE_ADD(i) \
    lane_##i.read(sum, meta.cell_index); \
    sum = sum + WIDE(hdr.lanes.lane_##i); \
    lane_##i.write(meta.cell_index, sum); \
    LANE_TO_PACKET(i)

#define LANE_RECALL(i) \
    lane_##i.read(sum, meta.cell_index); \
    LANE_TO_PACKET(i)

control Aggregate(inout headers_t hdr, inout metadata_t meta) {
    FOR_EACH_LANE(LANE_REGISTER)

    action store() {
        FOR_EACH_LANE(LANE_STORE)
    }

    action add() {
        bit<32> sum;
        FOR_EACH_LANE(LANE_ADD)
    }

    // What is in the cell, for a reply to somebody whose numbers are not added.
    action recall() {
        bit<32> sum;
        FOR_EACH_LANE(LANE_RECALL)
    }

    apply {
        meta.overflow = 0;
        if (meta.verdict == REPLAYED || meta.verdict == MISMATCH) {
            recall();
        } else if (meta.begins) {
            store();
        } else {
            add();
        }
    }
}
