# Resources whose part of GitLab's API a cell does not have; see test_terraform.py.

terraform {
  required_providers {
    gitlab = { source = "gitlabhq/gitlab" }
  }
}

provider "gitlab" {}

variable "project" {
  type = string
}

resource "gitlab_label" "red" {
  project = var.project
  name    = "red"
  color   = "#ff0000"
}

resource "gitlab_deploy_key" "robot" {
  project = var.project
  title   = "robot"
  key     = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ4LCVMmKD9d6N1nWm4lZnVQ8V9l7MmWSBJ2Ei0DBNYv"
}

resource "gitlab_project_cluster" "farm" {
  project            = var.project
  name               = "farm"
  kubernetes_api_url = "https://farm.example.com"
  kubernetes_token   = "token"
}

resource "gitlab_service_slack" "chat" {
  project = var.project
  webhook = "https://hooks.example.com/chat"
}

resource "gitlab_project" "shared" {
  name = "shared"
  shared_with_groups {
    group_id           = 1
    group_access_level = "developer"
  }
}
