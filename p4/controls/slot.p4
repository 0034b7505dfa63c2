// The state of a slot, lanes apart: read, judged by Epoch, Seen and Count, written back. The only control with these
// registers, so that what a packet can change is seen in one place: nothing, unless its numbers are added.
//
// It belongs into the ingress: BMv2 has one thread there, and one for each egress port; and a packet must be judged once,
// however many copies of the reply leave. So reading, judging and writing are one step as far as packets can tell.
//
// `owners` makes restarts safe without the control plane touching a register: a slot that was left by another job, or by
// another start of this one, is found to be not ours and counts as never used, until the first packet takes it.

control Slot(inout headers_t hdr, inout metadata_t meta) {
    register<bit<64>>(MAX_SLOTS) owners;          // job and incarnation
    register<bit<32>>(MAX_SLOTS) currents;        // newest epoch

    register<bit<32>>(MAX_SLOTS * 2) epochs;      // these are indexed by cell: slot * 2 + epoch's last bit
    register<bit<64>>(MAX_SLOTS * 2) chunk_ids;
    register<bit<64>>(MAX_SLOTS * 2) masks;
    register<bit<16>>(MAX_SLOTS * 2) counts;
    register<bit<16>>(MAX_SLOTS * 2) exponents;
    register<bit<16>>(MAX_SLOTS * 2) next_exponents;
    register<bit<16>>(MAX_SLOTS * 2) flags;

    Epoch() epoch;
    Seen() seen;
    Count() count;

    apply {
        bit<64> owner;
        owners.read(owner, meta.slot_index);
        meta.is_fresh = owner != hdr.aggregation.job ++ hdr.aggregation.incarnation;
        if (meta.is_fresh) {
            meta.current = 0;
            meta.cell.count = 0;
            meta.other_count = 0;
        } else {
            currents.read(meta.current, meta.slot_index);
            epochs.read(meta.cell.epoch, meta.cell_index);
            chunk_ids.read(meta.cell.chunk_id, meta.cell_index);
            masks.read(meta.cell.mask, meta.cell_index);
            counts.read(meta.cell.count, meta.cell_index);
            exponents.read(meta.cell.exponent, meta.cell_index);
            next_exponents.read(meta.cell.next_exponent, meta.cell_index);
            flags.read(meta.cell.flags, meta.cell_index);
            counts.read(meta.other_count, meta.cell_index ^ 1);
        }

        epoch.apply(hdr, meta);
        if (meta.verdict == GOES_ON) {
            seen.apply(hdr, meta);
        }
        if (meta.verdict == GOES_ON) {
            count.apply(hdr, meta);

            masks.write(meta.cell_index, meta.cell.mask);
            counts.write(meta.cell_index, meta.cell.count);
            flags.write(meta.cell_index, meta.cell.flags);
            next_exponents.write(meta.cell_index, meta.cell.next_exponent);
            if (meta.begins) {
                currents.write(meta.slot_index, meta.cell.epoch);
                epochs.write(meta.cell_index, meta.cell.epoch);
                chunk_ids.write(meta.cell_index, meta.cell.chunk_id);
                exponents.write(meta.cell_index, meta.cell.exponent);
            }
            if (meta.is_fresh) {
                // The other cell holds what an earlier owner left.
                owners.write(meta.slot_index, hdr.aggregation.job ++ hdr.aggregation.incarnation);
                counts.write(meta.cell_index ^ 1, 0);
            }
        }
    }
}
