//! Finds DPDK by pkg-config, generates bindings to it, and compiles wrappers of its inline functions.
//! Without the feature `dpdk` this script does nothing.

#[cfg(feature = "dpdk")]
mod bind {
    use std::env;
    use std::error::Error;
    use std::path::{Path, PathBuf};

    /// The oldest version of DPDK whose API the bindings support.
    const OLDEST: &str = "22.11";

    /// Functions that `thc-dpdk` calls.
    const FUNCTIONS: &[&str] = &[
        "rte_eal_init",
        "rte_strerror",
        "rte_version",
        "rte_thread_register",
        "rte_thread_unregister",
        "rte_dev_probe",
        "rte_dev_remove",
        "rte_mempool_free",
        "rte_mempool_avail_count",
        "rte_pktmbuf_alloc_bulk",
        "rte_pktmbuf_free_bulk",
        "rte_pktmbuf_free",
        "rte_pktmbuf_read",
        "rte_mbuf_refcnt_update",
        "rte_eth_dev_get_port_by_name",
        "rte_eth_dev_info_get",
        "rte_eth_dev_configure",
        "rte_eth_dev_adjust_nb_rx_tx_desc",
        "rte_eth_rx_queue_setup",
        "rte_eth_tx_queue_setup",
        "rte_eth_dev_start",
        "rte_eth_dev_stop",
        "rte_eth_dev_close",
        "rte_eth_dev_set_mtu",
        "rte_eth_dev_get_mtu",
        "rte_eth_dev_socket_id",
        "rte_eth_dev_rss_reta_update",
        "rte_eth_dev_default_mac_addr_set",
        "rte_eth_macaddr_get",
        "rte_eth_link_get_nowait",
        "rte_eth_promiscuous_enable",
        "rte_eth_stats_get",
        "rte_eth_rx_burst",
        "rte_eth_tx_burst",
        "rte_eth_from_rings",
        "rte_flow_validate",
        "rte_flow_create",
        "rte_flow_flush",
        "rte_ring_create",
        "rte_ring_free",
        "thc_errno",
        "thc_pool_create",
        "thc_link_up",
        "thc_link_speed",
        "thc_mbuf_tx_offload",
        "thc_flow_protocol",
    ];

    /// Types whose fields `thc-dpdk` fills in or reads, beyond those that the functions name.
    const TYPES: &[&str] = &[
        "rte_flow_item_udp",
        "rte_flow_action_queue",
        "rte_flow_item_type",
        "rte_flow_action_type",
        "rte_eth_rss_reta_entry64",
        "mbuf_offset",
        "mbuf_flag",
        "eth_offload",
        "eth_number",
    ];

    /// Types that Rust only passes on. The C compiler computes where the fields of an mbuf lie (wrapper.h).
    const OPAQUE: &[&str] = &[
        "rte_mbuf",
        "rte_mempool",
        "rte_ring",
        "rte_device",
        "rte_driver",
        "rte_flow",
        "rte_flow_item_ipv4",
        "rte_eth_dev",
        "rte_eth_fp_ops",
    ];

    fn probe() -> Result<pkg_config::Library, Box<dyn Error>> {
        pkg_config::Config::new().atleast_version(OLDEST).probe("libdpdk").map_err(|cause| {
            format!(
                "the feature `dpdk` needs DPDK {OLDEST} or later with its headers: on Debian and Ubuntu, apt-get \
                 install libdpdk-dev libclang-dev; if it lies elsewhere, set PKG_CONFIG_PATH ({cause})"
            )
            .into()
        })
    }

    pub fn main() -> Result<(), Box<dyn Error>> {
        let header = "src/wrapper.h";
        println!("cargo:rerun-if-changed={header}");
        println!("cargo:rerun-if-changed=build.rs");
        let library = probe()?;
        let out = PathBuf::from(env::var("OUT_DIR")?);
        // Flags that the crate `pkg-config` does not model: DPDK's inline functions need the instruction set for which
        // the library was built.
        let mut flags = vec!["-include".to_owned(), "rte_config.h".to_owned()];
        flags.extend(library.include_paths.iter().map(|path| format!("-I{}", path.display())));
        match env::var("CARGO_CFG_TARGET_ARCH")?.as_str() {
            "x86_64" => flags.push("-march=corei7".to_owned()),
            "aarch64" => flags.push("-march=armv8-a+crc".to_owned()),
            _ => {}
        }
        let inline = out.join("inline.c");
        let mut builder = bindgen::Builder::default()
            .header(header)
            .clang_args(&flags)
            .use_core()
            .layout_tests(false)
            .generate_comments(false)
            .formatter(bindgen::Formatter::None)
            .prepend_enum_name(false)
            .derive_default(true)
            .rust_edition(bindgen::RustEdition::Edition2024)
            .wrap_unsafe_ops(true)
            .wrap_static_fns(true)
            .wrap_static_fns_path(&inline)
            .parse_callbacks(Box::new(bindgen::CargoCallbacks::new()));
        for function in FUNCTIONS {
            builder = builder.allowlist_function(function);
        }
        for name in TYPES {
            builder = builder.allowlist_type(name);
        }
        for name in OPAQUE {
            builder = builder.opaque_type(name);
        }
        builder.generate()?.write_to_file(out.join("bindings.rs"))?;
        compile(&inline, &flags)?;
        // The driver of virtual devices that consist of rings. DPDK loads all other drivers when it starts.
        println!("cargo:rustc-link-lib=rte_net_ring");
        Ok(())
    }

    fn compile(inline: &Path, flags: &[String]) -> Result<(), Box<dyn Error>> {
        let mut build = cc::Build::new();
        build.file(inline).include(env::var("CARGO_MANIFEST_DIR")?).warnings(false).opt_level(3);
        for flag in flags {
            build.flag(flag);
        }
        build.try_compile("dpdk_inline")?;
        Ok(())
    }
}

#[cfg(feature = "dpdk")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    bind::main()
}

#[cfg(not(feature = "dpdk"))]
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
}
