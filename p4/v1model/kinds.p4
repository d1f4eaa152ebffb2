// Of a packet that the cell drops.
const event_t NO_EVENT = 7;
