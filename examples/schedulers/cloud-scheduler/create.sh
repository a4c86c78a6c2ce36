#!/bin/sh
# Makes the job in Cloud Scheduler and the service account whose token it sends. Run it again to change the job.
#
#   PROJECT=my-project REGION=europe-west1 TOCSIN_URL=https://tocsin.example.com sh create.sh
set -eu

project=${PROJECT:?names the project} region=${REGION:?names the region} url=${TOCSIN_URL:?is where Tocsin listens}
name=shipments-tick
ticks="${url%/}/v1/jobs/shipments.expire/ticks"
account="$name@$project.iam.gserviceaccount.com"

gcloud services enable cloudscheduler.googleapis.com --project "$project"
gcloud iam service-accounts describe "$account" --project "$project" >/dev/null 2>&1 ||
  gcloud iam service-accounts create "$name" --project "$project" --display-name 'Rings shipments.expire'

if gcloud scheduler jobs describe "$name" --project "$project" --location "$region" >/dev/null 2>&1; then
  verb=update
else
  verb=create
fi
gcloud scheduler jobs "$verb" http "$name" --project "$project" --location "$region" \
  --schedule '0 2 * * *' --time-zone Etc/UTC \
  --uri "$ticks" --http-method POST \
  --oidc-service-account-email "$account" --oidc-token-audience "$ticks" \
  --attempt-deadline 60s --max-retry-attempts 5 --min-backoff 10s --max-backoff 300s --max-doublings 5
