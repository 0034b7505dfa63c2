// The drop simulator: loses packets at random, on the way in and on the way out, to try what a lossy network does without
// one. Off unless the control plane gives a port a rate; an instance in the ingress and one in the egress, so that updates
// and results can be lost apart. Each copy of a multicast result is drawn for on its own.

control Lose(inout metadata_t meta, in bit<9> port, inout bool is_lost) {
    counter(1, CounterType.packets) lost;

    // 0 never, 1,000,000 always.
    action lose(bit<32> per_million) {
        bit<32> draw;
        random(draw, 32w0, 32w999999);
        is_lost = draw < per_million;
    }

    action keep() {
        is_lost = false;
    }

    table loss {
        key = {
            port: exact @name("port");
        }
        actions = { lose; keep; }
        default_action = keep();
        size = 512;
    }

    apply {
        loss.apply();
        if (is_lost) {
            lost.count(0);
        }
    }
}
