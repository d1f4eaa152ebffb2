//! Messages, client and server from the `.proto` file, without protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let set = protox::compile(["thc/control/v1/control.proto"], ["proto"])?;
    tonic_prost_build::configure()
        .message_attribute(".", "#[derive(serde::Serialize)]")
        .include_file("modules.rs")
        .compile_fds(set)?;
    Ok(())
}
