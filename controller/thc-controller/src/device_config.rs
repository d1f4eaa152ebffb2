//! The device's part of SetForwardingPipelineConfig, in the form that its server takes.

use crate::error::{self, ControllerError};
use prost::Message;
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// What Stratum takes for a Tofino. Names and numbers are those of its `stratum.hal.barefoot.BfPipelineConfig`.
#[derive(Clone, PartialEq, Message)]
struct PipelineConfig {
    #[prost(string, tag = "1")]
    program: String,
    /// The compiler's bfrt.json.
    #[prost(bytes = "vec", tag = "2")]
    runtime: Vec<u8>,
    #[prost(message, repeated, tag = "3")]
    pipelines: Vec<Pipeline>,
}

#[derive(Clone, PartialEq, Message)]
struct Pipeline {
    #[prost(string, tag = "1")]
    name: String,
    /// context.json.
    #[prost(bytes = "vec", tag = "2")]
    context: Vec<u8>,
    /// tofino.bin.
    #[prost(bytes = "vec", tag = "3")]
    binary: Vec<u8>,
    /// The chip's pipes that run it.
    #[prost(uint32, repeated, tag = "4")]
    pipes: Vec<u32>,
}

/// The compiler's .conf, as far as it counts here: what a chip runs, by the files' names.
#[derive(Deserialize)]
struct Conf {
    p4_devices: Vec<Device>,
}

#[derive(Deserialize)]
struct Device {
    p4_programs: Vec<Program>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Program {
    program_name: String,
    bfrt_config: PathBuf,
    #[serde(rename = "p4_pipelines")]
    pipelines: Vec<Part>,
}

#[derive(Deserialize)]
struct Part {
    p4_pipeline_name: String,
    context: PathBuf,
    config: PathBuf,
    #[serde(default)]
    pipe_scope: Vec<u32>,
}

/// The bytes of a file. From a `.conf` of Tofino's compiler it makes those that Stratum takes, with the files
/// that it names, relative to its folder.
pub fn read(path: &Path) -> Result<Vec<u8>, ControllerError> {
    let bytes = error::read(path)?;
    if path.extension().is_none_or(|extension| extension != "conf") {
        return Ok(bytes);
    }
    let refused = |mend: String| ControllerError::Value {
        key: "target.device_config".to_owned(),
        value: path.display().to_string(),
        mend,
    };
    let conf: Conf = serde_json::from_slice(&bytes)
        .map_err(|error| refused(format!("give a .conf of p4c for Tofino: {error}")))?;
    let mut programs = conf.p4_devices.into_iter().flat_map(|device| device.p4_programs);
    let (Some(program), None) = (programs.next(), programs.next()) else {
        return Err(refused("give a .conf with one program".to_owned()));
    };
    let folder = path.parent().unwrap_or(Path::new("."));
    let pipelines = program.pipelines.into_iter().map(|part| {
        Ok(Pipeline {
            name: part.p4_pipeline_name,
            context: error::read(&folder.join(part.context))?,
            binary: error::read(&folder.join(part.config))?,
            pipes: part.pipe_scope,
        })
    });
    let config = PipelineConfig {
        program: program.program_name,
        runtime: error::read(&folder.join(program.bfrt_config))?,
        pipelines: pipelines.collect::<Result<_, ControllerError>>()?,
    };
    Ok(config.encode_to_vec())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::fs;

    const CONF: &str = r#"{"chip_list": [{"chip_family": "tofino"}], "p4_devices": [{"device-id": 0, "p4_programs": [
        {"program-name": "thc", "bfrt-config": "bfrt.json", "p4_pipelines": [{"p4_pipeline_name": "pipe",
         "context": "pipe/context.json", "config": "pipe/tofino.bin", "pipe_scope": [0, 1, 2, 3], "path": "."}]}]}]}"#;

    #[test]
    fn the_compilers_files_become_what_stratum_takes() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("pipe")).unwrap();
        for (name, text) in [
            ("thc.conf", CONF),
            ("bfrt.json", "{}"),
            ("pipe/context.json", "{1}"),
            ("pipe/tofino.bin", "\0bin"),
        ] {
            fs::write(at(name), text).unwrap();
        }
        let bytes = read(&at("thc.conf")).unwrap();
        // Field 1 with "thc", field 2 with "{}", field 3 with 4 + 2, 1 + 4, 2 + 4 and the packed pipes.
        let head = b"\x0a\x03thc\x12\x02{}\x1a\x17\x0a\x04pipe\x12\x03{1}\x1a\x04\0bin\x22\x04\0\x01\x02\x03";
        assert_eq!(bytes, head);
        let back = PipelineConfig::decode(&*bytes).unwrap();
        assert_eq!((&*back.program, &*back.pipelines[0].binary), ("thc", &b"\0bin"[..]));

        // Anything else goes as it is.
        assert_eq!(read(&at("pipe/tofino.bin")).unwrap(), b"\0bin");
        fs::remove_file(at("bfrt.json")).unwrap();
        assert!(
            matches!(read(&at("thc.conf")), Err(ControllerError::Read { path, .. }) if path == at("bfrt.json"))
        );
        for text in ["{}", r#"{"p4_devices": []}"#] {
            fs::write(at("thc.conf"), text).unwrap();
            let said = read(&at("thc.conf")).unwrap_err().to_string();
            assert!(said.contains("target.device_config") && said.contains("give a .conf"), "{said}");
        }
    }
}
