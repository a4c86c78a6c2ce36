# Makes the job in Cloud Scheduler and the service account whose token it sends.

terraform {
  required_version = ">= 1.5"
  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 5.0"
    }
  }
}

variable "project" {
  type = string
}

variable "region" {
  type = string
}

variable "tocsin_url" {
  type        = string
  description = "Where Tocsin listens, like https://tocsin.example.com."
}

locals {
  ticks = "${trimsuffix(var.tocsin_url, "/")}/v1/jobs/shipments.expire/ticks"
}

resource "google_project_service" "scheduler" {
  project            = var.project
  service            = "cloudscheduler.googleapis.com"
  disable_on_destroy = false
}

resource "google_service_account" "tick" {
  project      = var.project
  account_id   = "shipments-tick"
  display_name = "Rings shipments.expire"
}

resource "google_cloud_scheduler_job" "tick" {
  project          = var.project
  region           = var.region
  name             = "shipments-tick"
  schedule         = "0 2 * * *"
  time_zone        = "Etc/UTC"
  attempt_deadline = "60s"

  retry_config {
    retry_count          = 5
    min_backoff_duration = "10s"
    max_backoff_duration = "300s"
    max_doublings        = 5
  }

  http_target {
    http_method = "POST"
    uri         = local.ticks

    oidc_token {
      service_account_email = google_service_account.tick.email
      audience              = local.ticks
    }
  }

  depends_on = [google_project_service.scheduler]
}

output "email" {
  description = "The `email` claim for tocsin.toml."
  value       = google_service_account.tick.email
}
