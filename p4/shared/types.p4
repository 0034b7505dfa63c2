// What is known of a packet on its way through the controls.

// A slot has two cells, of even and of odd epochs. This is one of them, without its lanes (controls/aggregate.p4 has
// those). A cell with a count of 0 was never begun: beginning one counts its first worker in the same packet.
struct cell_t {
    bit<32> epoch;
    bit<64> chunk_id;
    bit<64> mask;            // a bit a worker: whose numbers are in it
    bit<16> count;           // how many those are, so that nobody must count bits
    bit<16> exponent;
    bit<16> next_exponent;
    bit<16> flags;
}

struct metadata_t {
    bit<8>  verdict;         // shared/constants.p4

    // From the table of admitted workers: what a packet says of itself is never believed.
    bit<64> mine;            // the worker's bit
    bit<16> workers;         // of the job
    bit<16> group;           // multicast to all of them
    bit<9>  port;            // of this one
    bit<16> receiver;        // this one's number in the table of receivers
    bit<32> base;            // the job's part of the pool
    bit<32> slots;
    bit<32> incarnation;

    // Where its slot and cell are in the registers.
    bit<32> slot_index;
    bit<32> cell_index;

    bit<32> current;         // the newest epoch of the slot
    bit<16> other_count;     // count of the slot's other cell
    cell_t  cell;            // the cell of the packet's epoch
    bool    is_fresh;        // the slot has not served this start of this job yet
    bool    begins;          // the packet is the first of its epoch

    bit<16> overflow;        // FLAG_OVERFLOW if a lane had to be limited, else 0
    bool    is_unicast;      // the reply goes to one worker, not to all
}
