# What test_terraform.py applies to a cell, twice: the second round changes every value that can be changed in place.

terraform {
  required_providers {
    gitlab = { source = "gitlabhq/gitlab" }
  }
}

provider "gitlab" {}

variable "round" {
  type = number
}

locals {
  is_second = var.round == 2
}

resource "gitlab_group" "top" {
  name                   = "Plant ${var.round}"
  path                   = "plant"
  description            = "round ${var.round}"
  visibility_level       = local.is_second ? "internal" : "private"
  lfs_enabled            = true
  request_access_enabled = false
}

resource "gitlab_group" "inner" {
  name        = "Line ${var.round}"
  path        = "line"
  parent_id   = gitlab_group.top.id
  description = "round ${var.round}"
}

resource "gitlab_project" "press" {
  name             = "Press ${var.round}"
  path             = "press-${var.round}"
  namespace_id     = gitlab_group.inner.id
  description      = "round ${var.round}"
  default_branch   = local.is_second ? "stable" : "main"
  visibility_level = local.is_second ? "internal" : "private"
  tags             = local.is_second ? ["steel", "robots"] : ["steel"]

  # Features that a cell does not have.
  issues_enabled         = false
  merge_requests_enabled = false
  wiki_enabled           = false
  snippets_enabled       = false

  approvals_before_merge                           = 0
  merge_method                                     = "merge"
  only_allow_merge_if_pipeline_succeeds            = false
  only_allow_merge_if_all_discussions_are_resolved = false
}

resource "gitlab_project" "own" {
  name                   = "own"
  default_branch         = "main"
  issues_enabled         = false
  merge_requests_enabled = false
  wiki_enabled           = false
  snippets_enabled       = false
}

resource "gitlab_project_variable" "key" {
  project   = gitlab_project.press.id
  key       = "KEY"
  value     = "value ${var.round}"
  protected = local.is_second
}

resource "gitlab_group_variable" "key" {
  group     = gitlab_group.top.id
  key       = "KEY"
  value     = "group value ${var.round}"
  protected = local.is_second
}

resource "gitlab_pipeline_trigger" "nightly" {
  project     = gitlab_project.press.id
  description = "round ${var.round}"
}

resource "gitlab_project_hook" "chat" {
  project                 = gitlab_project.press.id
  url                     = "https://hooks.example.com/${var.round}"
  token                   = "secret-${var.round}"
  push_events             = local.is_second
  tag_push_events         = true
  job_events              = local.is_second
  pipeline_events         = !local.is_second
  issues_events           = false
  merge_requests_events   = false
  note_events             = false
  wiki_page_events        = false
  enable_ssl_verification = !local.is_second
}

resource "gitlab_branch_protection" "release" {
  project            = gitlab_project.press.id
  branch             = "release-*"
  push_access_level  = local.is_second ? "no one" : "maintainer"
  merge_access_level = "developer"
}

resource "gitlab_user" "welder" {
  username          = "welder"
  name              = "Welder ${var.round}"
  email             = "welder@example.com"
  password          = "not-used-by-a-cell"
  is_admin          = local.is_second
  skip_confirmation = true
  is_external       = false
  can_create_group  = false
  projects_limit    = 0
}

resource "gitlab_group_membership" "welder" {
  group_id     = gitlab_group.top.id
  user_id      = gitlab_user.welder.id
  access_level = local.is_second ? "developer" : "reporter"
  expires_at   = "2099-01-0${var.round}"
}

resource "gitlab_project_membership" "welder" {
  project_id   = gitlab_project.press.id
  user_id      = gitlab_user.welder.id
  access_level = local.is_second ? "maintainer" : "developer"
}

data "gitlab_project" "press" {
  id = gitlab_project.press.id
}

data "gitlab_user" "by_name" {
  username   = "welder"
  depends_on = [gitlab_user.welder]
}

data "gitlab_user" "by_mail" {
  email      = "welder@example.com"
  depends_on = [gitlab_user.welder]
}

data "gitlab_users" "found" {
  search     = "welder"
  sort       = "asc"
  depends_on = [gitlab_user.welder]
}

data "gitlab_users" "blocked" {
  blocked    = true
  depends_on = [gitlab_user.welder]
}

output "ids" {
  value = {
    top     = gitlab_group.top.id
    inner   = gitlab_group.inner.id
    press   = gitlab_project.press.id
    own     = gitlab_project.own.id
    trigger = gitlab_pipeline_trigger.nightly.id
    hook    = gitlab_project_hook.chat.id
    user    = gitlab_user.welder.id
  }
}

output "found" {
  value = {
    project = data.gitlab_project.press.path
    by_name = data.gitlab_user.by_name.email
    by_mail = data.gitlab_user.by_mail.username
    users   = [for user in data.gitlab_users.found.users : user.username]
    blocked = data.gitlab_users.blocked.users
  }
}
