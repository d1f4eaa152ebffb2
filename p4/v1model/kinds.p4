// P7: reasons that need the slot's cell. They are counted by `drops` only, so that `carrier` has two of the same
// numbers for what is not in P7.
const reason_t DROP_ROUND = 11;
const reason_t DROP_MIXED = 12;

// Of a packet that the cell drops.
const event_t NO_EVENT = 7;
