//! The coordinator of the crate gitlab-runner-mock as a process: a line of JSON on stdin asks, a line on stdout answers.
//!
//! The first line out says where it listens and which token it takes. It ends with its stdin.

use std::sync::Arc;

use gitlab_runner_mock::{GitlabRunnerMock, MockJobStepName, MockJobStepWhen};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

fn texts(value: &Value) -> Vec<String> {
    value
        .as_array()
        .map(|list| list.iter().filter_map(Value::as_str).map(str::to_string).collect())
        .unwrap_or_default()
}

fn add(mock: &GitlabRunnerMock, order: &Value) -> Value {
    let mut builder = mock.job_builder("interop".to_string());
    builder.add_variable("GIT_STRATEGY".to_string(), "none".to_string(), true, false);
    if let Some(secret) = order["secret"].as_str() {
        builder.add_variable("SECRET".to_string(), secret.to_string(), false, true);
    }
    builder.add_step(MockJobStepName::Script, texts(&order["script"]), 600, MockJobStepWhen::OnSuccess, false);
    let after = texts(&order["after_script"]);
    if !after.is_empty() {
        builder.add_step(MockJobStepName::AfterScript, after, 300, MockJobStepWhen::Always, true);
    }
    let paths = texts(&order["artifacts"]);
    if !paths.is_empty() {
        builder.add_artifact_paths(paths);
    }
    let job = builder.build();
    let id = job.id();
    mock.enqueue_job(job);
    json!({ "id": id })
}

fn look(mock: &GitlabRunnerMock, id: u64) -> Value {
    let Some(job) = mock.get_job(id) else {
        return json!({ "error": "no such job" });
    };
    let artifacts: Vec<Value> = job
        .uploaded_artifacts()
        .map(|file| json!({ "filename": file.filename, "bytes": Arc::clone(&file.data).len() }))
        .collect();
    json!({
        "state": job.state().to_string(),
        "log": String::from_utf8_lossy(&job.log()),
        "patches": job.log_patches(),
        "updates": job.state_updates(),
        "artifacts": artifacts,
    })
}

#[tokio::main]
async fn main() {
    let mock = GitlabRunnerMock::start().await;
    println!("{}", json!({ "url": mock.uri().to_string(), "token": mock.runner_token() }));
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let order: Value = serde_json::from_str(&line).expect("an order is a line of JSON");
        let id = order["id"].as_u64().unwrap_or_default();
        let answer = match order["order"].as_str().unwrap_or_default() {
            "add" => add(&mock, &order),
            "look" => look(&mock, id),
            "cancel" => {
                mock.get_job(id).expect("a job to cancel").cancel();
                json!({})
            }
            "expect" => {
                mock.set_expected_metadata_version(order["version"].as_str().unwrap_or_default());
                mock.set_expected_metadata_platform(order["platform"].as_str().unwrap_or_default());
                mock.set_expected_metadata_architecture(order["architecture"].as_str().unwrap_or_default());
                json!({})
            }
            "interval" => {
                mock.set_update_interval(order["seconds"].as_u64().unwrap_or(3) as u32);
                json!({})
            }
            "requests" => json!({ "requests": mock.n_requests().await }),
            other => json!({ "error": format!("no such order: {other}") }),
        };
        println!("{answer}");
    }
}
