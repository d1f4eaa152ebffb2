//! Messages from the `.proto` files, and with the feature `service` client and server, without protoc.

use std::path::Path;

const FILES: [&str; 2] = ["p4/v1/p4runtime.proto", "p4/config/v1/p4info.proto"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::Compiler::new(["proto"])?
        .include_imports(true)
        .open_files(FILES)?
        .encode_file_descriptor_set();
    let out = std::env::var("OUT_DIR")?;
    std::fs::write(Path::new(&out).join("descriptors.bin"), &descriptors)?;
    let set = protox::compile(FILES, ["proto"])?;
    let service = std::env::var_os("CARGO_FEATURE_SERVICE").is_some();
    let configured = tonic_prost_build::configure().build_client(service).build_server(service);
    configured.include_file("modules.rs").compile_fds(set)?;
    Ok(())
}
