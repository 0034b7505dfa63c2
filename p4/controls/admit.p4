// Row 2: who sent it. The key is where a packet comes from and the job that it names; the answer is all that the switch
// knows of that worker. The field `worker` of the packet is not looked at: a worker that is mistaken about its number, or
// lies, can only spoil its own part of the sum.
//
// The control plane writes an entry a worker when a job is admitted (collectives/p4/aggregation.py), and sees to it that
// base + slots stays within the pool and that no two jobs share a slot.

control Admit(inout headers_t hdr, inout metadata_t meta) {
    action admit(
        bit<64> mine, bit<16> workers, bit<16> group, bit<9> port, bit<16> receiver, bit<32> base, bit<32> slots,
        bit<32> incarnation) {
        meta.mine = mine;
        meta.workers = workers;
        meta.group = group;
        meta.port = port;
        meta.receiver = receiver;
        meta.base = base;
        meta.slots = slots;
        meta.incarnation = incarnation;
    }

    action refuse() {
        meta.verdict = STRANGER;
    }

    table workers {
        key = {
            hdr.ipv4.source: exact @name("address");
            hdr.udp.source_port: exact @name("udp_port");
            hdr.aggregation.job: exact @name("job");
        }
        actions = { admit; refuse; }
        default_action = refuse();
        size = 4096;
    }

    apply {
        workers.apply();
    }
}
