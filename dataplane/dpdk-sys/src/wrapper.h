/* The input of bindgen: DPDK's headers, and the constants that C expresses as macros or offsets.
* The compiler computes offsets and flags, so they fit every version of DPDK. */
#include <stddef.h>

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_flow.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_mbuf_pool_ops.h>
#include <rte_mempool.h>
#include <rte_ring.h>
#include <rte_version.h>

/* Offsets of the fields of struct rte_mbuf. */
enum mbuf_offset {
	MBUF_BUF_ADDR = offsetof(struct rte_mbuf, buf_addr),
	MBUF_DATA_OFF = offsetof(struct rte_mbuf, data_off),
	MBUF_NB_SEGS = offsetof(struct rte_mbuf, nb_segs),
	MBUF_OL_FLAGS = offsetof(struct rte_mbuf, ol_flags),
	MBUF_PKT_LEN = offsetof(struct rte_mbuf, pkt_len),
	MBUF_DATA_LEN = offsetof(struct rte_mbuf, data_len),
	MBUF_BUF_LEN = offsetof(struct rte_mbuf, buf_len),
	MBUF_NEXT = offsetof(struct rte_mbuf, next),
	MBUF_REFCNT = offsetof(struct rte_mbuf, refcnt),
	MBUF_HEADROOM = RTE_PKTMBUF_HEADROOM,
	MBUF_DEFAULT_ROOM = RTE_MBUF_DEFAULT_BUF_SIZE,
};

/* Packet flags. */
enum mbuf_flag {
	FLAG_RX_L4_CKSUM_MASK = RTE_MBUF_F_RX_L4_CKSUM_MASK,
	FLAG_RX_L4_CKSUM_GOOD = RTE_MBUF_F_RX_L4_CKSUM_GOOD,
	FLAG_RX_IP_CKSUM_MASK = RTE_MBUF_F_RX_IP_CKSUM_MASK,
	FLAG_RX_IP_CKSUM_GOOD = RTE_MBUF_F_RX_IP_CKSUM_GOOD,
	/* The packet's buffer belongs to another packet or to the application. */
	FLAG_INDIRECT = RTE_MBUF_F_INDIRECT,
	FLAG_EXTERNAL = RTE_MBUF_F_EXTERNAL,
	FLAG_TX_IPV4 = RTE_MBUF_F_TX_IPV4,
	FLAG_TX_IP_CKSUM = RTE_MBUF_F_TX_IP_CKSUM,
	FLAG_TX_UDP_CKSUM = RTE_MBUF_F_TX_UDP_CKSUM,
};

/* Capabilities of a device, and the fields that RSS hashes. */
enum eth_offload {
	OFFLOAD_RX_IPV4_CKSUM = RTE_ETH_RX_OFFLOAD_IPV4_CKSUM,
	OFFLOAD_RX_UDP_CKSUM = RTE_ETH_RX_OFFLOAD_UDP_CKSUM,
	OFFLOAD_TX_IPV4_CKSUM = RTE_ETH_TX_OFFLOAD_IPV4_CKSUM,
	OFFLOAD_TX_UDP_CKSUM = RTE_ETH_TX_OFFLOAD_UDP_CKSUM,
	OFFLOAD_TX_MULTI_SEGS = RTE_ETH_TX_OFFLOAD_MULTI_SEGS,
	RSS_NONFRAG_IPV4_UDP = RTE_ETH_RSS_NONFRAG_IPV4_UDP,
	/* Makes all constants 64 bits wide, like the fields to which they are assigned. */
	OFFLOAD_WIDEST = 1ULL << 62,
};

enum eth_number {
	ETH_MQ_RX_RSS = RTE_ETH_MQ_RX_RSS,
	ETH_RETA_GROUP = RTE_ETH_RETA_GROUP_SIZE,
	RING_SP_ENQ = RING_F_SP_ENQ,
	RING_SC_DEQ = RING_F_SC_DEQ,
};

/* rte_errno lies in thread-local storage, behind a macro. */
static inline int thc_errno(void) { return rte_errno; }

/* Like rte_pktmbuf_pool_create, except with ordinary pages: DPDK then keeps each packet within a page, so that all packets
* begin at the same offsets of their pages and compete for a few sets of the caches. Where devices use the addresses that
* the process uses, a packet may lie across two pages. */
static inline struct rte_mempool *thc_pool_create(const char *name, unsigned int packets, unsigned int cache, uint16_t room)
{
	struct rte_pktmbuf_pool_private private = { .mbuf_data_room_size = room };
	unsigned int size = sizeof(struct rte_mbuf) + room, flags = 0;
	struct rte_mempool *pool;
	int failed;

	if (!rte_eal_has_hugepages() && rte_eal_iova_mode() == RTE_IOVA_VA)
		flags |= RTE_MEMPOOL_F_NO_IOVA_CONTIG;
	pool = rte_mempool_create_empty(name, packets, size, cache, sizeof(private), SOCKET_ID_ANY, flags);
	if (pool == NULL)
		return NULL;
	failed = rte_mempool_set_ops_byname(pool, rte_mbuf_best_mempool_ops(), NULL);
	if (failed == 0) {
		rte_pktmbuf_pool_init(pool, &private);
		failed = rte_mempool_populate_default(pool);
	}
	if (failed < 0) {
		rte_mempool_free(pool);
		rte_errno = -failed;
		return NULL;
	}
	rte_mempool_obj_iter(pool, rte_pktmbuf_init, NULL);
	return pool;
}

/* Fields that lie at different offsets or in bit fields, depending on the version of DPDK. */
static inline int thc_link_up(const struct rte_eth_link *link) { return link->link_status; }
static inline uint32_t thc_link_speed(const struct rte_eth_link *link) { return link->link_speed; }
static inline void thc_mbuf_tx_offload(struct rte_mbuf *m, uint64_t flags, uint16_t l2_len, uint16_t l3_len)
{
	m->ol_flags |= flags;
	m->l2_len = l2_len;
	m->l3_len = l3_len;
}
static inline void thc_flow_protocol(struct rte_flow_item_ipv4 *item, uint8_t protocol) { item->hdr.next_proto_id = protocol; }
