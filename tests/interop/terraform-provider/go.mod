// Gets the GitLab provider of Terraform as a module; see docs/interop.md.
module remuda/interop/terraform-provider

go 1.26

require github.com/terraform-providers/terraform-provider-gitlab v1.3.0

replace github.com/terraform-providers/terraform-provider-gitlab => github.com/gitlabhq/terraform-provider-gitlab v1.3.0

// The provider's own version of Terraform's SDK speaks plugin protocol 4 alone; this one has the same Go API and speaks 5.
replace github.com/hashicorp/terraform => github.com/hashicorp/terraform v0.12.29
