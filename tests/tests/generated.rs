//! What is generated and kept beside its sources is what these make: the code in `generated/` of the `.proto` files, and the binary
//! form of the P4Info. `THC_GENERATE=1 cargo test -p thc-tests --test generated` writes it anew.
#![allow(clippy::unwrap_used)]

use p4runtime_proto::p4info;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Compares a file with what it should have, or writes that.
fn check(path: &Path, contents: &[u8]) {
    if std::env::var_os("THC_GENERATE").is_some() {
        fs::write(path, contents).unwrap();
    }
    let kept = fs::read(path).unwrap_or_default();
    assert!(kept == contents, "{} is not up to date: run this test with THC_GENERATE=1", path.display());
}

/// Compiles `.proto` files of a crate as they are configured.
fn check_code(krate: &str, files: &[&str], configure: impl FnOnce(Builder) -> Builder) {
    let folder = root().join(krate);
    let made = tempfile::tempdir().unwrap();
    let builder = tonic_prost_build::configure().out_dir(made.path()).include_file("modules.rs");
    // With comments, which become documentation.
    configure(builder).compile_fds(protox::compile(files, [folder.join("proto")]).unwrap()).unwrap();
    for entry in fs::read_dir(made.path()).unwrap() {
        let entry = entry.unwrap();
        check(&folder.join("generated").join(entry.file_name()), &fs::read(entry.path()).unwrap());
    }
    let descriptors = folder.join("generated/descriptors.bin");
    if descriptors.exists() {
        let mut compiler = protox::Compiler::new([folder.join("proto")]).unwrap();
        compiler.include_imports(true).open_files(files).unwrap();
        check(&descriptors, &compiler.encode_file_descriptor_set());
    }
}

type Builder = tonic_prost_build::Builder;

#[test]
fn the_code_of_the_controllers_service_is_up_to_date() {
    let serialize = |builder: Builder| builder.message_attribute(".", "#[derive(serde::Serialize)]");
    check_code("controller/control-proto", &["thc/control/v1/control.proto"], serialize);
}

#[test]
fn the_code_of_p4runtime_is_up_to_date() {
    const SERVICE: &str = "#[cfg(feature = \"service\")]";
    let gate = |builder: Builder| {
        builder.client_mod_attribute("p4.v1", SERVICE).server_mod_attribute("p4.v1", SERVICE)
    };
    check_code("controller/p4runtime-proto", &["p4/v1/p4runtime.proto", "p4/config/v1/p4info.proto"], gate);
}

#[test]
fn both_forms_of_the_p4info_say_the_same() {
    use prost::Message;
    let build = root().join("p4/build");
    let info = p4info::parse(&fs::read(build.join("thc.p4info.txtpb")).unwrap()).unwrap();
    let binary = build.join("thc.p4info.bin");
    if std::env::var_os("THC_GENERATE").is_some() {
        fs::write(&binary, info.encode_to_vec()).unwrap();
    }
    assert_eq!(p4info::parse(&fs::read(&binary).unwrap()).unwrap(), info, "make p4 writes both");
}
