// What every architecture has: errors, ways to match, the packet's two faces. Built into the interpreter.

error { NoError, PacketTooShort, NoMatch, StackOutOfBounds, HeaderTooShort, ParserTimeout, ParserInvalidArgument }

match_kind { exact, ternary, lpm }

extern packet_in {
    void extract<T>(out T value);
    void extract<T>(out T value, in bit<32> varbit_bits);
    T lookahead<T>();
    void advance(in bit<32> bits);
    bit<32> length();
}

extern packet_out {
    void emit<T>(in T value);
}

extern void verify(in bool condition, in error otherwise);

@noWarn("unused")
action NoAction() {}
